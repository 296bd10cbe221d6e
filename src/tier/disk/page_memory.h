// Memory aligned to pages, as O_DIRECT requires.
// Threading: one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tier/disk/layout.h"

namespace stemma::tier::disk {

class PageMemory {
 public:
  PageMemory() = default;
  // Empty if the system gave none. `bytes` is a multiple of kPage.
  explicit PageMemory(size_t bytes)
      : data_(static_cast<uint8_t*>(std::aligned_alloc(kPage, bytes))), bytes_(data_ ? bytes : 0) {}
  uint8_t* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return bytes_; }
  std::span<uint8_t> first(size_t bytes) const noexcept { return {data_.get(), bytes}; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  struct Free {
    void operator()(uint8_t* data) const noexcept { std::free(data); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

inline bool at_page(const void* memory) noexcept {
  return reinterpret_cast<uintptr_t>(memory) % kPage == 0;
}

// How a body moves to or from the caller's memory: whole pages of the payload directly, if the
// memory is page-aligned and the rest fits into one page.
struct Split {
  uint64_t direct = 0;  // Bytes.
  uint64_t rest = 0;    // Bytes after those, in whole pages.
};
inline Split split_body(const EntryInfo& info, const uint8_t* memory) noexcept {
  const uint64_t whole = info.bytes / kPage * kPage;
  const bool direct = whole != 0 && at_page(memory) && body_bytes(info) - whole <= kPage;
  return {direct ? whole : 0, pages_of(info) * kPage - (direct ? whole : 0)};
}

// Buffers for callers' memory that is not page-aligned. Returned buffers are kept for reuse, up to
// a limit, so that steady use allocates nothing.
class BouncePool {
 public:
  static constexpr size_t kKeptBytes = size_t{64} << 20U;

  PageMemory take(size_t bytes) {
    size_t best = kept_.size();
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].size() < bytes) continue;
      if (best == kept_.size() || kept_[i].size() < kept_[best].size()) best = i;
    }
    if (best == kept_.size()) return PageMemory(std::bit_ceil(bytes));
    std::swap(kept_[best], kept_.back());
    PageMemory memory = std::move(kept_.back());
    kept_.pop_back();
    kept_bytes_ -= memory.size();
    return memory;
  }
  void give_back(PageMemory memory) {
    if (!memory || kept_bytes_ + memory.size() > kKeptBytes) return;
    kept_bytes_ += memory.size();
    kept_.push_back(std::move(memory));
  }

 private:
  std::vector<PageMemory> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace stemma::tier::disk
