#include <new>

#include "stemma/tier/tier.h"
#include "tier/wait_until.h"

namespace stemma {

std::string_view to_string(EntryKind kind) noexcept {
  switch (kind) {
    case EntryKind::block: return "block";
    case EntryKind::segment: return "segment";
    case EntryKind::state: return "state";
    case EntryKind::checkpoint: return "checkpoint";
    case EntryKind::logits: return "logits";
    case EntryKind::object: return "object";
    case EntryKind::transcript: return "transcript";
  }
  return "?";
}

std::string_view to_string(TierOutcome outcome) noexcept {
  switch (outcome) {
    case TierOutcome::pending: return "pending";
    case TierOutcome::done: return "done";
    case TierOutcome::absent: return "absent";
    case TierOutcome::refused: return "refused";
    case TierOutcome::corrupt: return "corrupt";
    case TierOutcome::failed: return "failed";
    case TierOutcome::late: return "late";
    case TierOutcome::cancelled: return "cancelled";
  }
  return "?";
}

Result<std::shared_ptr<TierBatch>> TierBatch::make(TierOp op, size_t items) {
  try {
    return std::make_shared<TierBatch>(op, items);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a batch");
  }
}

TierOutcome TierBatch::verdict(uint64_t now_ns) const noexcept {
  if (is_cancelled()) return TierOutcome::cancelled;
  return now_ns >= deadline_ns ? TierOutcome::late : TierOutcome::pending;
}

void TierBatch::end(size_t i, TierOutcome outcome) noexcept {
  items_[i].outcome = outcome;
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (on_done) on_done(*this);
  // Under the lock, so that a waiter cannot read the count and then sleep past this notification.
  const std::lock_guard lock(mutex_);
  ended_.notify_all();
}

bool TierBatch::wait(uint64_t until_ns) {
  std::unique_lock lock(mutex_);
  return tier::wait_until(ended_, lock, until_ns, [this] { return finished(); });
}

}  // namespace stemma
