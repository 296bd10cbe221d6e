// FaultyTier: wraps any tier and makes it fail on a schedule, in every way that a tier can. For our
// tests and those of embedders.
//
// The contract of tiers allows all these faults: items fail, are late, are corrupt, are done
// although they report failure, or are evicted at once. Only `lie` breaks the contract, to show
// whether a test would notice.
//
// Only the seed, the batch's number since the plan was set, and the item's place in the batch
// decide whether an item meets a fault: the same calls in the same order meet the same faults.
// Threading:  thread-safe. Without delays a batch reaches the inner tier inside submit().
// Ownership:  owns the inner tier. Once a batch is passed to it, cancel() no longer ends the batch;
//             only its deadline does.
// Cost:       for each batch passed on, another batch with a copy of its items.
#pragma once

#include <cstdint>
#include <memory>

#include "stemma/tier/tier.h"

namespace stemma {

// Chances are in thousandths, per item.
struct FaultPlan {
  uint64_t seed = 1;
  uint32_t fail = 0;  // The item does nothing and ends as failed.
  // The item is done, but ends as failed. The room of a get then holds the bytes.
  uint32_t lose_answer = 0;
  // A get fills only part of its room and ends as corrupt, and the entry is removed.
  uint32_t tear = 0;
  // A get puts one wrong bit into its room and ends as corrupt, and the entry is removed.
  uint32_t flip = 0;
  uint32_t forget = 0;  // A put ends as done, and its entry is evicted at once.
  uint32_t lie = 0;     // A get puts one wrong bit into its room, but ends as done.
  // How long each batch waits before it begins.
  uint64_t delay_ns = 0, jitter_ns = 0;
  uint64_t bytes_per_second = 0;  // Adds time for a batch's payloads; 0: adds none.
  // In batches [begin, end) all items fail. Batches are counted since the plan was set.
  uint64_t outage_begin = 0, outage_end = 0;
  bool stall = false;  // Nothing begins until the next set_plan().
};

struct FaultCounts {
  uint64_t failed = 0, lost_answers = 0, torn = 0, flipped = 0, forgotten = 0, lies = 0;
  uint64_t delayed_batches = 0;
};

class FaultyTier final : public Tier {
 public:
  FaultyTier(std::unique_ptr<Tier> inner, const FaultPlan& plan);
  ~FaultyTier() override;
  FaultyTier(const FaultyTier&) = delete;
  FaultyTier& operator=(const FaultyTier&) = delete;

  // Applies from the next batch on; stalled batches begin.
  void set_plan(const FaultPlan& plan);
  FaultCounts faults() const;

  const TierTraits& traits() const noexcept override;
  void submit(std::shared_ptr<TierBatch> batch) override;
  TierStats stats() const override;
  bool flush(uint64_t until_ns) override;
  // Counts as a batch of one item: in an outage, or if it meets `fail`, nothing is removed.
  Purged purge(const Purge& what, uint64_t until_ns) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stemma
