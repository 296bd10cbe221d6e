#include "tier/seal/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace stemma::tier::seal {

namespace {

constexpr size_t kHugePage = size_t{2} << 20U;

}  // namespace

bool Staging::create(uint64_t bytes) {
  const uint64_t size = (std::max(bytes, kPage) + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size)));
  if (memory_ == nullptr) return false;
  // Huge pages mean fewer pages to look up and to pin. If the system refuses, small ones are used.
  (void)madvise(memory_.get(), size, MADV_HUGEPAGE);
  const base::Lock lock(mutex_);
  taken_.resize(std::max<uint64_t>(bytes / kPage, 1));
  return true;
}

size_t Staging::find(size_t from, size_t to, size_t pages) const noexcept {
  while (from + pages <= to) {
    const uint8_t* const begin = taken_.data() + from;
    const auto* used = static_cast<const uint8_t*>(std::memchr(begin, 1, pages));
    if (used == nullptr) return from;
    from += static_cast<size_t>(used - begin) + 1;
  }
  return to;
}

Staging::Piece Staging::take(uint64_t bytes) noexcept {
  const size_t pages = whole_pages(std::max<uint64_t>(bytes, 1)) / kPage;
  const base::Lock lock(mutex_);
  Piece piece;
  if (pages > taken_.size()) {
    if (pieces_ != 0) return piece;
    piece.data_ = static_cast<uint8_t*>(std::aligned_alloc(kPage, pages * kPage));
  } else {
    const size_t all = taken_.size();
    size_t first = find(next_, all, pages);
    if (first == all) first = find(0, all, pages);
    if (first == all) return piece;
    std::memset(taken_.data() + first, 1, pages);
    next_ = first + pages;
    piece.data_ = memory_.get() + first * kPage;
    piece.pages_ = pages;
  }
  if (piece.data_ != nullptr) ++pieces_;
  piece.staging_ = this;
  return piece;
}

void Staging::give_back(uint8_t* data, size_t pages) noexcept {
  const base::Lock lock(mutex_);
  --pieces_;
  if (pages == 0) {
    std::free(data);
    return;
  }
  std::memset(taken_.data() + static_cast<size_t>(data - memory_.get()) / kPage, 0, pages);
}

bool Staging::is_idle() const noexcept {
  const base::Lock lock(mutex_);
  return pieces_ == 0;
}

}  // namespace stemma::tier::seal
