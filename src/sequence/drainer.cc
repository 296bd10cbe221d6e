#include "sequence/drainer.h"

#include <algorithm>
#include <new>

#include "sequence/capture_rules.h"

namespace stemma::sequence {

Drained Drainer::drain(const DrainLimits& limits) {
  Drained drained;
  books_.step_ns = std::min(limits.step_ns, kStepNs);
  try {
    drain(limits, drained);
    if (capturer_.left() != 0) drained.more = drained.waits = true;
  } catch (const std::bad_alloc&) {
    // The next call continues the capture that is under way.
  }
  books_.step_ns = kStepNs;
  return drained;
}

void Drainer::drain(const DrainLimits& limits, Drained& drained) {
  while (clearer_.mend()) {
  }
  notifier_.tell_of_evicted();
  const uint64_t started = books_.clock->now_ns();
  const uint64_t until = limits.ns > kNoDeadline - started ? kNoDeadline : started + limits.ns;
  while (!capturer_.collect_left(until) && until == kNoDeadline) capturer_.wait_for_left();
  uint32_t passed_over = 0;
  while ((capturer_.run() != nullptr || drained.bytes < limits.bytes) &&
         books_.clock->now_ns() < until) {
    if (capturer_.run() == nullptr) {
      if (!start_next(limits, drained, passed_over)) {
        drained.more = drained.items >= limits.items && books_.queue.size() != 0;
        return;
      }
      // There was nothing to read, or a checkpoint was saved first, which is a step of its own.
      if (capturer_.run() == nullptr || capturer_.run()->anchor.bytes != 0) continue;
    }
    if (!limits.dear && capturer_.next_is_dear()) capturer_.set_aside();
    const uint64_t before = capturer_.run()->writer.captured().bytes;
    const bool went_on = capturer_.go_on(until);
    drained.bytes += capturer_.run()->writer.captured().bytes - before;
    if (capturer_.run()->writer.over()) {
      const Captured captured = capturer_.end();
      if (captured.fate == CaptureFate::saved) ++drained.saved;
      idle_.drop_for_all();
      relocator_.move_down(drained.moving_ns);
    } else if (!went_on) {
      // Threads are still working on what was read.
      drained.waits = until != kNoDeadline;
      if (drained.waits) break;
      capturer_.wait();
    }
  }
  drained.more = capturer_.run() != nullptr || books_.queue.size() != 0;
}

// Begins with the oldest capture that may begin. Returns false if there is none.
bool Drainer::start_next(const DrainLimits& limits, Drained& drained, uint32_t& passed_over) {
  if (drained.items >= limits.items) return false;
  uint32_t next = books_.queue.front();
  for (uint32_t i = 0; i < passed_over && next != CaptureQueue::kNone; ++i) {
    next = books_.queue.after(next);
  }
  const auto may_begin = [&](uint32_t sequence) {
    return (limits.evict || fits_without_eviction(books_, sequence)) &&
           (limits.dear || !waits_dear(books_, sequence));
  };
  while (next != CaptureQueue::kNone && !may_begin(next)) {
    next = books_.queue.after(next);
    ++passed_over;
  }
  if (next == CaptureQueue::kNone) return false;
  ++drained.items;
  capturer_.begin(next);
  if (capturer_.run() == nullptr || !capturer_.run()->writer.over()) return true;
  drained.bytes += capturer_.run()->anchor.bytes;
  const Captured captured = capturer_.end();
  if (captured.fate == CaptureFate::saved) ++drained.saved;
  return true;
}

}  // namespace stemma::sequence
