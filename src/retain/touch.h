// What a caller says about retention, as a policy sees it. Threading: pure functions.
#pragma once

#include <algorithm>

#include "stemma/clock.h"
#include "stemma/retention.h"

namespace stemma::retain {

// A use, now, of something that has this priority and time to live, by who said `retain`.
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
  // Who comes back goes last until a time to live of its own is over, whatever its session does.
  const Priority lasting = retain.will_return ? kMaxPriority + 1 : priority;
  touch.expired_priority = ttl_ns == kNever ? lasting : kDefaultPriority;
  touch.expired_phase = retain.phase;
  if (retain.phase == SessionPhase::active && retain.session_ttl_ns != kNever) {
    touch.deadline_ns = std::min(touch.deadline_ns, deadline_after(now_ns, retain.session_ttl_ns));
    touch.expired_phase = SessionPhase::ended;
  }
  return touch;
}

// The same for what ends after `position`, which one of the ranges may say more about.
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
