#include "tier/transfer_arena.h"

#include <algorithm>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma::tier {

using base::MutexLock;

namespace {

// A smaller arena is not worth a thread.
constexpr uint64_t kWorthWarming = uint64_t{32} << 20U;

}  // namespace

std::shared_ptr<TransferArena> TransferArena::create(uint64_t bytes, HostMemoryHook* hook) {
  constexpr uint64_t kMostPages = 1U << 31U;
  std::shared_ptr<TransferArena> arena(new TransferArena);
  arena->pages_ = static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kPageBytes, 1, kMostPages));
  if (!arena->memory_.reserve(arena->bytes()) || !arena->memory_.commit(0, arena->bytes()) ||
      !arena->ranges_.reserve(arena->pages_) || !arena->ranges_.commit(0, arena->pages_)) {
    return nullptr;
  }
  {
    const MutexLock lock(arena->mutex_);
    arena->mark(0, arena->pages_, true);
  }
  if (hook != nullptr && hook->pin(arena->memory_.data(), arena->bytes())) {
    arena->pinned_by_ = hook;
    return arena;
  }
  if (hook != nullptr)
    log(LogLevel::warning, "a stack's transfer_bytes could not be pinned: they are plain memory");
  if (arena->bytes() >= kWorthWarming) {
    arena->warmer_.emplace(arena->memory_.data());
    arena->warmer_->warm_up_to(arena->bytes());
  }
  return arena;
}

TransferArena::~TransferArena() {
  if (pinned_by_ != nullptr) pinned_by_->unpin(memory_.data(), bytes());
}

uint8_t* TransferArena::take(uint64_t bytes) noexcept {
  if (bytes > this->bytes()) return nullptr;
  const auto wanted =
      static_cast<uint32_t>(std::max<uint64_t>((bytes + kPageBytes - 1) / kPageBytes, 1));
  const MutexLock lock(mutex_);
  uint32_t first = next_;
  do {
    const Range range = ranges_[first];
    if (range.free != 0 && range.pages >= wanted) {
      mark(first, wanted, false);
      if (range.pages > wanted) mark(first + wanted, range.pages - wanted, true);
      next_ = first + wanted == pages_ ? 0 : first + wanted;
      taken_ += wanted;
      return memory_.data() + uint64_t{first} * kPageBytes;
    }
    first += range.pages;
    if (first == pages_) first = 0;
  } while (first != next_);
  return nullptr;
}

void TransferArena::give_back(const uint8_t* memory) noexcept {
  const MutexLock lock(mutex_);
  auto first = static_cast<uint32_t>(static_cast<uint64_t>(memory - memory_.data()) / kPageBytes);
  uint32_t pages = ranges_[first].pages;
  STEMMA_CHECK(ranges_[first].free == 0);
  taken_ -= pages;
  const uint32_t after = first + pages;
  if (after != pages_ && ranges_[after].free != 0) {
    // The free range begins earlier now.
    if (next_ == after) next_ = first;
    pages += ranges_[after].pages;
  }
  if (first != 0 && ranges_[first - 1].free != 0) {
    const uint32_t before = ranges_[first - 1].pages;
    if (next_ == first) next_ = first - before;
    first -= before;
    pages += before;
  }
  mark(first, pages, true);
}

uint64_t TransferArena::taken_bytes() const noexcept {
  const MutexLock lock(mutex_);
  return uint64_t{taken_} * kPageBytes;
}

void TransferArena::check_invariants() const {
  const MutexLock lock(mutex_);
  uint32_t taken = 0;
  bool before_free = false, begins = false;
  uint32_t first = 0;
  while (first < pages_) {
    const Range range = ranges_[first];
    STEMMA_CHECK(range.pages != 0 && range.pages <= pages_ - first);
    const Range last = ranges_[first + range.pages - 1];
    STEMMA_CHECK(last.pages == range.pages && last.free == range.free);
    STEMMA_CHECK(!before_free || range.free == 0);
    before_free = range.free != 0;
    begins = begins || first == next_;
    if (!before_free) taken += range.pages;
    first += range.pages;
  }
  STEMMA_CHECK(taken == taken_ && begins);
}

}  // namespace stemma::tier
