// Batch: the request of one stemma_store_submit(), until the caller was told that it has ended.
//
//   under way --end() of the last item, or end_all()--> over
//
// The caller's memory (values and results) may be touched while the batch is under way, and never
// afterwards: begin_copy() comes before each copy, and end_all() waits for copies that have begun.
//
// Invariant:  an item ends once; the ledger is told once, when all items have ended.
// Threading:  thread-safe. No lock is held while bytes are copied or the ledger is told.
// Ownership:  borrows values and results from the caller until it is over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/lock.h"
#include "stemma/stemma_store.h"
#include "stemma/tier/tier_stack.h"
#include "tier/object/space.h"

namespace stemma::capi::store {

class Ledger;

enum class Op : uint8_t { put, get, contains, remove, touch };
inline constexpr size_t kOps = 5;
enum class Status : uint8_t { pending, done, absent, busy, refused, failed, late, cancelled };
inline constexpr size_t kStatuses = 8;

struct Item {
  uint32_t number = 0;  // In the request.
  uint32_t key_at = 0, parent_at = 0;
  uint8_t key_size = 0, parent_size = 0;
  Priority priority = kDefaultPriority;
  uint32_t depth = 0;
  void* value = nullptr;
  uint64_t bytes = 0;  // put: of the value. get: of the room.
};

// A request, checked and copied, except its values and results.
struct Request {
  Op op = Op::put;
  std::shared_ptr<const tier::object::Space> space;
  std::vector<Item> items;  // In the order in which they are worked on.
  std::vector<uint8_t> key_bytes;
  uint64_t timeout_ns = 0;  // 0: the store's.
  uint64_t user = 0;
  stemma_store_result* results = nullptr;

  std::span<const uint8_t> key(const Item& item) const noexcept {
    return std::span(key_bytes).subspan(item.key_at, item.key_size);
  }
  std::span<const uint8_t> parent(const Item& item) const noexcept {
    return std::span(key_bytes).subspan(item.parent_at, item.parent_size);
  }
};

class Batch final : public tier::StoreListener {
 public:
  // `number` is the caller's stemma_batch.
  Batch(Request&& request, uint64_t number, uint64_t deadline_ns, std::shared_ptr<Ledger> ledger);

  const Request& request() const noexcept { return request_; }
  std::span<const Item> items() const noexcept { return request_.items; }
  uint64_t number() const noexcept { return number_; }
  uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  bool is_over() const;

  // Whether the caller's memory may be touched now; then end_copy() must follow.
  bool begin_copy();
  void end_copy();

  // Ends item i of items(), unless it has ended. bytes: of its value.
  void end(size_t i, Status status, tier::LevelMask levels = 0, uint64_t bytes = 0);
  // Ends all that has not ended. When it returns, the batch is over.
  void end_all(Status status);

  // Item i was handed to `levels` levels; `there`: the levels that had it already. settled() ends
  // it when they have all answered, and then gives `bytes` back to the ledger's budget.
  void expect(size_t i, uint32_t levels, tier::LevelMask there, uint64_t bytes);
  void settled(uint64_t number, uint32_t level, TierOutcome outcome) noexcept override;

  // Requires: it is over.
  const stemma_store_finished& finished() const noexcept { return finished_; }

 private:
  struct State {
    Status status = Status::pending;
    Status worst = Status::refused;  // Of the levels that did not take it.
    uint8_t levels_left = 0;
    uint8_t levels = 0;
    uint64_t budget_bytes = 0;
  };

  // Returns true if it was the last item.
  bool end_one(size_t i, Status status, tier::LevelMask levels, uint64_t bytes)
      STEMMA_REQUIRES(mutex_);
  void sum_up() noexcept STEMMA_REQUIRES(mutex_);  // Once.

  const Request request_;
  const uint64_t number_, deadline_ns_;
  const std::shared_ptr<Ledger> ledger_;

  mutable base::WaitMutex mutex_;
  base::Condition copied_;
  std::vector<State> states_ STEMMA_GUARDED_BY(mutex_);
  size_t left_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint32_t copies_ STEMMA_GUARDED_BY(mutex_) = 0;   // Under way.
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;  // No copy begins any more.
  bool over_ STEMMA_GUARDED_BY(mutex_) = false;
  stemma_store_finished finished_{};  // Not changed any more once over_.
};

}  // namespace stemma::capi::store
