// Staging: page-aligned memory for sealed bytes on their way to and from the inner tier.
//
// Invariant:  no more than `bytes` are taken at a time, or a single piece that is larger.
// Threading:  thread-safe.
// Cost:       memory is taken from the system once, and touched when it is first used.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "tier/transfer_arena.h"

namespace stemma::tier::seal {

class Staging {
 public:
  static constexpr uint64_t kPage = TransferArena::kPageBytes;
  static uint64_t whole_pages(uint64_t bytes) noexcept {
    return (bytes + kPage - 1) / kPage * kPage;
  }

  // A piece that goes back when it is let go.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept
        : arena_(std::move(other.arena_)), data_(std::exchange(other.data_, nullptr)) {}
    Piece& operator=(Piece&& other) noexcept {
      std::swap(arena_, other.arena_);
      std::swap(data_, other.data_);
      return *this;
    }
    ~Piece() {
      if (data_ == nullptr) return;
      if (arena_ != nullptr) {
        arena_->give_back(data_);
      } else {
        std::free(data_);
      }
    }
    uint8_t* data() const noexcept { return data_; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

   private:
    friend class Staging;
    std::shared_ptr<TransferArena> arena_;  // Null: of the system.
    uint8_t* data_ = nullptr;
  };

  // False: the system has no memory.
  bool create(uint64_t bytes) {
    arena_ = TransferArena::create(bytes, nullptr);
    return arena_ != nullptr;
  }

  // Empty: there is none free. When nothing else is taken, that means that the system has none either.
  Piece take(uint64_t bytes) noexcept {
    Piece piece;
    if (bytes <= arena_->bytes()) {
      piece.data_ = arena_->take(bytes);
      if (piece.data_ != nullptr) piece.arena_ = arena_;
    } else if (is_idle()) {
      piece.data_ = static_cast<uint8_t*>(std::aligned_alloc(kPage, whole_pages(bytes)));
    }
    return piece;
  }
  bool is_idle() const noexcept { return arena_->taken_bytes() == 0; }

 private:
  std::shared_ptr<TransferArena> arena_;
};

}  // namespace stemma::tier::seal
