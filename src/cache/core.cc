#include "cache/core.h"

#include <optional>

#include "cache/lease/ending.h"

namespace stemma::cache {

Core::Core(const Options& options)
    : clock_(options.clock != nullptr ? options.clock : &Clock::monotonic()),
      store_(options),
      view_(store_.books),
      records_(options) {}

bool Core::create() {
  return locked([](Store& store) { return store.create(); });
}

void Core::disown() {
  bool last;
  {
    const Section lock(*this);
    owned_ = false;
    last = unused();
  }
  if (last) delete this;
}

void Core::end(LeaseRecord* lease, Fence* fence) {
  const bool waits = fence != nullptr && !fence->signalled();
  bool last;
  {
    const Section lock(*this);
    if (waits) {
      lease->fence = fence;
      fenced_.push(lease);
      fenced_count_.fetch_add(1, std::memory_order_relaxed);
    } else {
      settle(store_, *lease);
      records_.give_back(lease);
    }
    last = unused();
  }
  if (last) delete this;
}

uint32_t Core::poll() {
  if (fenced_count_.load(std::memory_order_relaxed) == 0) return 0;
  LeaseQueue asked;
  {
    const Section lock(*this);
    asked.put_before(fenced_);
  }
  // Fences are the engine's code, so they are called without the lock.
  LeaseQueue done;
  LeaseQueue waiting;
  while (LeaseRecord* lease = asked.pop()) {
    (lease->fence->signalled() ? done : waiting).push(lease);
  }
  uint32_t settled = 0;
  const Section lock(*this);
  while (LeaseRecord* lease = done.pop()) {
    settle(store_, *lease);
    records_.give_back(lease);
    ++settled;
  }
  fenced_.put_before(waiting);
  fenced_count_.fetch_sub(settled, std::memory_order_relaxed);
  return settled;
}

Reclaimed Core::reclaim(uint32_t positions, uint32_t most) {
  Reclaimed reclaimed;
  std::optional<ReclaimList> list;
  {
    const Section lock(*this);
    list.emplace(store_.books);
    reclaimed.evicted_ = store_.reclaimer.reclaim(positions, most, *list);
    if (list->blocks().empty()) return reclaimed;
    ++reclaims_;
  }
  reclaimed.core_ = this;
  reclaimed.blocks_ = std::move(list->blocks());
  list->add_keys(reclaimed.blocks_);
  reclaimed.paths_ = list->take_words();
  return reclaimed;
}

void Core::end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept {
  bool last;
  {
    const Section lock(*this);
    store_.reclaimer.end(blocks);
    --reclaims_;
    last = unused();
  }
  if (last) delete this;
}

}  // namespace stemma::cache
