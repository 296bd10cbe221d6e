// What a cache stores and removes, as a numbered stream for routers and other observers.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"

namespace stemma {

enum class EventKind : uint8_t { stored, removed, cleared };

// `stored`: keys[i] is the content key of the i-th block after `parent`; `words` are their words,
// back to back (a media position is 2^31 or more and means nothing outside this process).
// `removed`: keys only. `cleared`: everything went.
struct Event {
  uint64_t sequence = 0;  // Counts up by one; a gap: the ring overflowed, or memory ran out.
  EventKind kind = EventKind::stored;
  ContentKey parent{};
  std::vector<ContentKey> keys;
  std::vector<uint32_t> words;
  uint32_t block_tokens = 0;
};

// Everything cached at one instant, as `stored` events, and the sequence number from which the
// stream continues. For observers that join late or saw a gap.
struct EventDump {
  std::vector<Event> events;
  uint64_t next_sequence = 0;
  bool complete = true;  // false: there was no memory for it, and nothing is in it.
};

}  // namespace stemma
