// Staging: page-aligned memory for sealed bytes on their way to and from the inner tier.
//
// Pieces are taken one after another, in a ring, so that memory is reused as late as possible.
// Reusing the same few MiB made puts on a virtual disk take twice as much CPU
// (bench/results/2026-11-18-sealed.txt), probably because another core had just read them.
//
// Invariant:  at most `bytes` are taken at a time, or one larger piece.
// Threading:  thread-safe.
// Cost:       memory is taken from the system once, and touched at its first use. One byte of books
//             a page; take() reads all of them at worst, a cache line at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/lock.h"

namespace stemma::tier::seal {

class Staging {
 public:
  static constexpr uint64_t kPage = 4096;
  static uint64_t whole_pages(uint64_t bytes) noexcept {
    return (bytes + kPage - 1) / kPage * kPage;
  }

  // A piece that its destructor gives back. The staging memory must outlive it.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept { *this = std::move(other); }
    Piece& operator=(Piece&& other) noexcept {
      std::swap(staging_, other.staging_);
      std::swap(data_, other.data_);
      std::swap(pages_, other.pages_);
      return *this;
    }
    ~Piece() {
      if (data_ != nullptr) staging_->give_back(data_, pages_);
    }
    uint8_t* data() const noexcept { return data_; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

   private:
    friend class Staging;
    Staging* staging_ = nullptr;
    uint8_t* data_ = nullptr;
    size_t pages_ = 0;  // 0: larger than all staging memory, so taken from the system.
  };

  // False: no memory. Requires: called once.
  bool create(uint64_t bytes);

  // Empty: none is free. If nothing else is taken, the system has none
  //        either.
  Piece take(uint64_t bytes) noexcept;
  bool is_idle() const noexcept;

 private:
  struct Free {
    void operator()(uint8_t* data) const noexcept { std::free(data); }
  };

  void give_back(uint8_t* data, size_t pages) noexcept;
  // The first of this many adjacent free pages in [from, to); `to` if there are none.
  size_t find(size_t from, size_t to, size_t pages) const noexcept STEMMA_REQUIRES(mutex_);

  std::unique_ptr<uint8_t, Free> memory_;
  mutable base::WaitMutex mutex_;
  std::vector<uint8_t> taken_ STEMMA_GUARDED_BY(mutex_);  // For each page: 1 or 0.
  size_t next_ STEMMA_GUARDED_BY(mutex_) = 0;             // After the piece taken last.
  size_t pieces_ STEMMA_GUARDED_BY(mutex_) = 0;           // Now taken.
};

}  // namespace stemma::tier::seal
