// FaultyTier: any tier, with everything that can go wrong going wrong on a schedule. For tests, of ours
// and of whoever embeds Stemma.
//
// What it does to a caller is what the contract of tiers allows: items fail, come late, are corrupt, are
// done although they say that they failed, are evicted at once. Only `lie` breaks the contract; it is
// there to see whether a test would notice.
//
// Whether an item meets a fault follows from the seed, the batch's number since the plan was set, and the
// item's place in it, and from nothing else: the same calls in the same order meet the same faults.
// Threading:  thread-safe. Without delays a batch reaches the inner tier inside submit().
// Ownership:  owns the inner tier. A batch that was handed on is no longer cancelled by cancel(), only by
//             its deadline.
// Cost:       a batch, and a copy of its items, for each that is handed on.
#pragma once

#include <cstdint>
#include <memory>

#include "stemma/tier.h"

namespace stemma {

// Chances are in thousandths, of an item.
struct FaultPlan {
  uint64_t seed = 1;
  uint32_t fail = 0;         // Nothing is done; ends as failed.
  uint32_t lose_answer = 0;  // It is done; ends as failed, and a get's room holds the bytes.
  uint32_t tear = 0;         // get: the room is filled in part; corrupt; the entry goes.
  uint32_t flip = 0;         // get: one bit of the room is wrong; corrupt; the entry goes.
  uint32_t forget = 0;       // put: done, and evicted at once.
  uint32_t lie = 0;          // get: one bit of the room is wrong, and it says done.
  // Before a batch begins.
  uint64_t delay_ns = 0, jitter_ns = 0;
  uint64_t bytes_per_second = 0;  // What a batch's payloads take besides; 0: no time.
  // Batches [begin, end) since the plan was set: everything fails.
  uint64_t outage_begin = 0, outage_end = 0;
  bool stall = false;  // Nothing begins until there is another plan.
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

  // From the next batch on; what was stalled begins.
  void set_plan(const FaultPlan& plan);
  FaultCounts faults() const;

  const TierTraits& traits() const noexcept override;
  void submit(std::shared_ptr<TierBatch> batch) override;
  TierStats stats() const override;
  bool flush(uint64_t until_ns) override;
  // Counts as a batch of one item: in an outage, or where a `fail` meets it, nothing is removed.
  Purged purge(const Purge& what, uint64_t until_ns) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stemma
