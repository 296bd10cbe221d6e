// Job: a batch on its way through a shared tier. It decides who may end or touch each item.
//
//   waiting --begin()--> working --take()--> touching --end_touched()--> ended
//      |                  |   ^---give()--------'
//      '--end_if(waiting)-'-- end_if(working) --> ended
//
// Each arrow is one compare-exchange, so exactly one thread ends an item, and nobody touches the
// caller's memory afterwards: a thread that finds an item `touching` tries again a little later.
// Threading:  states are thread-safe; the tier's lock guards fields marked so.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "stemma/tier/tier.h"
#include "tier/shared/directory.h"
#include "tier/wait_until.h"

namespace stemma::tier::shared {

// Since 1970, like file times.
inline uint64_t wall_ns() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

enum class ItemState : uint8_t { waiting, working, touching, ended };

struct Job {
  Job(std::shared_ptr<TierBatch> of, uint64_t number, uint64_t time_ns)
      : batch(std::move(of)),
        serial(number),
        used_ns(time_ns),
        size(batch->items().size()),
        unsettled(size),
        unended(size),
        states(size) {}

  bool change(size_t i, ItemState from, ItemState to) noexcept {
    return states[i].compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }
  // The shallowest counts as used last.
  uint64_t used_ns_of(size_t i) const noexcept { return used_ns - i; }

  const std::shared_ptr<TierBatch> batch;
  const uint64_t serial, used_ns;
  const size_t size;
  size_t next = 0;                  // Guarded: the first not begun.
  bool settled = false;             // Guarded.
  std::vector<EntryKey> published;  // Guarded: they can go once it is settled.
  std::atomic<size_t> unsettled, unended;
  std::vector<std::atomic<ItemState>> states;
};

// A worker's hold on one item. `seen_ns`: when the file system last let it proceed.
class ItemLoan final : public Loan {
 public:
  ItemLoan(Job& job, size_t item, std::atomic<uint64_t>& seen_ns) noexcept
      : job_(job), item_(item), seen_ns_(seen_ns) {}
  bool take() noexcept override {
    seen_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    return job_.change(item_, ItemState::working, ItemState::touching);
  }
  void give() noexcept override {
    job_.states[item_].store(ItemState::working, std::memory_order_release);
  }

 private:
  Job& job_;
  size_t item_;
  std::atomic<uint64_t>& seen_ns_;
};

}  // namespace stemma::tier::shared
