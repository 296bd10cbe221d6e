// A Slab is an array of fixed capacity that takes memory from the system as it is first used.
//
// Address space is reserved once, so elements never move and an index always stays valid. commit()
// takes zeroed pages, in ranges. An empty cache of a huge capacity costs nothing.
// Threading:  one thread at a time for commit(); the owner synchronizes access to elements.
// Cost:       commit() is a system call per range; owners call it in large steps.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace stemma::base {

// For tests: slabs get memory `times` more times, then are refused until the next call; kUnlimited
// restores normal behaviour. For all threads. Returns what was left of the last limit.
inline constexpr int64_t kUnlimited = -1;
int64_t refuse_slab_memory_after(int64_t times) noexcept;
bool slab_memory_refused() noexcept;

template <class T>
class Slab {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Slab() noexcept = default;
  Slab(Slab&& other) noexcept { swap(other); }
  Slab& operator=(Slab&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Slab() {
    if (data_ != nullptr) munmap(data_, reserved_bytes_);
  }

  // Reserves room for `count` elements. Returns false if the system refuses.
  [[nodiscard]] bool reserve(size_t count) {
    const size_t bytes = round_up(std::max<size_t>(count * sizeof(T), 1));
    if (slab_memory_refused()) return false;
    void* memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    // Use large pages where they fit: scattered cells then lie in few pages.
    madvise(memory, bytes, MADV_HUGEPAGE);
    reserved_bytes_ = bytes;
    data_ = static_cast<T*>(memory);
    return true;
  }

  // Makes elements [begin, end) usable; zeroed the first time. Returns false if out of memory.
  [[nodiscard]] bool commit(size_t begin, size_t end) {
    if (data_ == nullptr) return true;  // Never reserved: this owner does not use it.
    const size_t first = begin * sizeof(T) / page() * page();
    const size_t last = round_up(end * sizeof(T));
    if (last <= first) return true;
    if (slab_memory_refused()) return false;
    if (mprotect(reinterpret_cast<uint8_t*>(data_) + first, last - first, PROT_READ | PROT_WRITE) !=
        0) {
      return false;
    }
    committed_bytes_ += last - first;
    return true;
  }

  T* data() const noexcept { return data_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }
  explicit operator bool() const noexcept { return data_ != nullptr; }
  // Pages taken; a page shared by two ranges is counted twice.
  uint64_t bytes() const noexcept { return committed_bytes_; }

 private:
  static size_t page() noexcept {
    static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
  }
  static size_t round_up(size_t bytes) noexcept { return (bytes + page() - 1) / page() * page(); }
  void swap(Slab& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(committed_bytes_, other.committed_bytes_);
  }

  T* data_ = nullptr;
  size_t reserved_bytes_ = 0;
  uint64_t committed_bytes_ = 0;
};

// Plans commits in growing steps, for owners of one or more slabs that use elements from `begin`
// upwards: next(n) is the end to commit to when element n is about to be used.
class Growth {
 public:
  Growth() noexcept = default;
  Growth(size_t begin, size_t end) noexcept : committed_(begin), begin_(begin), end_(end) {}
  bool covers(size_t index) const noexcept { return index < committed_; }
  size_t committed() const noexcept { return committed_; }
  size_t next(size_t index) const noexcept {
    const size_t used = committed_ - begin_;
    const size_t step = std::clamp<size_t>(used, 64, 1U << 17U);
    return std::min(end_, std::max(index + 1, committed_ + step));
  }
  void advance(size_t committed) noexcept { committed_ = committed; }

 private:
  size_t committed_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace stemma::base
