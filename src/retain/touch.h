// Turns a caller's retention settings into a policy's Touch. Threading: pure functions.
#pragma once

#include <algorithm>

#include "stemma/clock.h"
#include "stemma/retention.h"

namespace stemma::retain {

// The touch for a use at `now_ns` with this priority and time to live; `retain` gives the rest.
inline Touch touch_of(const Retain& retain, Priority priority, uint64_t ttl_ns,
                      uint64_t now_ns) noexcept {
  Touch touch;
  touch.now_ns = now_ns;
  touch.priority = priority;
  touch.session = retain.session;
  touch.phase = retain.phase;
  touch.will_return = retain.will_return;
  touch.finish = retain.finish;
  touch.expected_return_ns = retain.expected_return_ns;
  touch.output_tokens = retain.output_tokens;
  touch.deadline_ns = deadline_after(now_ns, ttl_ns);
  // A prompt that will return is evicted last until its own time to live is over, whatever its
  // session does.
  const Priority lasting = retain.will_return ? kMaxPriority + 1 : priority;
  touch.expired_priority = ttl_ns == kNever ? lasting : kDefaultPriority;
  touch.expired_phase = retain.phase;
  if (retain.phase == SessionPhase::active && retain.session_ttl_ns != kNever) {
    touch.deadline_ns = std::min(touch.deadline_ns, deadline_after(now_ns, retain.session_ttl_ns));
    touch.expired_phase = SessionPhase::ended;
  }
  return touch;
}

// The same for an item that ends after `position`; one of the ranges may have other settings for
// it.
inline Touch touch_of(const Retain& retain, uint32_t position, uint64_t now_ns) noexcept {
  Priority priority = retain.priority;
  uint64_t ttl_ns = retain.ttl_ns;
  for (const PriorityRange& range : retain.ranges) {
    if (position < range.begin || position >= range.end) continue;
    priority = range.priority;
    ttl_ns = range.ttl_ns;
  }
  return touch_of(retain, priority, ttl_ns, now_ns);
}

}  // namespace stemma::retain
