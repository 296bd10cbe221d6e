// A CellArray is a Slab with one element per cell, which grows with the cells in use and can be
// copied.
//
// Elements arrive zeroed. Threading: one thread at a time. Cost: copying is O(cells in use).
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "base/slab.h"

namespace stemma::retain {

template <class T>
class CellArray {
 public:
  CellArray() noexcept = default;
  // Throws std::bad_alloc.
  CellArray(const CellArray& other) : cells_(other.cells_) {
    if (!other.slab_) return;
    if (!slab_.reserve(cells_) || !commit(other.committed_)) throw std::bad_alloc();
    std::memcpy(slab_.data(), other.slab_.data(), committed_ * sizeof(T));
  }
  CellArray& operator=(const CellArray&) = delete;
  ~CellArray() = default;

  // Returns false, and changes nothing, if the system refuses.
  [[nodiscard]] bool reserve(uint32_t cells) {
    cells_ = cells;
    return slab_.reserve(cells);
  }
  // Allocates the cells [0, end).
  [[nodiscard]] bool commit(size_t end) {
    if (end <= committed_) return true;
    if (!slab_.commit(committed_, end)) return false;
    committed_ = end;
    return true;
  }
  explicit operator bool() const noexcept { return static_cast<bool>(slab_); }
  T& operator[](size_t cell) noexcept { return slab_[cell]; }
  const T& operator[](size_t cell) const noexcept { return slab_[cell]; }
  uint64_t bytes() const noexcept { return slab_.bytes(); }

 private:
  base::Slab<T> slab_;
  uint32_t cells_ = 0;
  size_t committed_ = 0;
};

}  // namespace stemma::retain
