// Work: runs a piece of a batch on one of the store's threads: puts its items on the stack, gets
// them from it, or asks about them.
//
// Tiers only see copies: a put is copied from the caller's memory before it is handed to the stack,
// and a get is copied there after its envelope was compared. So a level that is stuck holds none of
// the caller's memory.
//
// Invariant:  each item of the piece has ended when run() returns, or ends when the levels that it
//             was handed to have settled. run() waits no longer than the batch's deadline, and the
//             stack's query_ns.
// Threading:  thread-safe; each piece is run once.
// Errors:     none: failures become statuses of items.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "capi/store/batch.h"
#include "capi/store/lane.h"
#include "capi/store/ledger.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::capi::store {

class Work {
 public:
  // Borrows the stack.
  Work(tier::TierStack& stack, std::shared_ptr<Ledger> ledger);

  void run(const Piece& piece) noexcept;
  // Which levels have the keys; asks only those that know at once.
  std::vector<tier::LevelMask> look(const tier::object::Space& space,
                                    std::span<const std::span<const uint8_t>> keys);

  uint64_t mismatched() const noexcept { return mismatched_.load(std::memory_order_relaxed); }

 private:
  void put(const Piece& piece);
  void put_one(const Piece& piece, size_t i, const tier::Wanted& wanted, tier::LevelMask there);
  void get(const Piece& piece);
  void hand_out(const Piece& piece, size_t i, const tier::Wanted& wanted,
                const tier::Loaded& loaded);
  void contains(const Piece& piece, bool touch);
  void remove(const Piece& piece);
  // The names of the piece's items, and what the stack should know of them.
  static std::vector<tier::Wanted> name(const Piece& piece);
  // Which levels have them. Asks those that know at once first, and all levels for the rest.
  std::vector<tier::LevelMask> find(std::span<const tier::Wanted> wanted);

  tier::TierStack& stack_;
  const std::shared_ptr<Ledger> ledger_;
  // Levels that take a put at once: by a put the engine says that the value leaves its memory.
  tier::LevelMask first_time_ = 0;
  std::atomic<uint64_t> mismatched_{0};
};

}  // namespace stemma::capi::store
