// What a cache stores and removes, as a numbered stream for routers and other observers.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"

namespace stemma {

enum class EventKind : uint8_t { stored, removed, cleared };

// Every event except `cleared` is about one layer group. Whatever was stored for a group and a key
// is there until it is removed for the same group and key, or everything is cleared. A key names a
// prefix in steps of the index; one step is the smallest block of all groups.
//
// `stored` for the index's own group (0, or kMaxGroups if the index has cells of its own: see
// Options): keys[i] is the content key of the i-th block after `parent`; `words` are the words of
// these blocks, back to back (a media position is 2^31 or more and has no meaning outside this
// process).
// `stored` for any other group: the group has the block (a recurrent group: the state) that ends
// where the prefix keys[i] ends. There is no parent and there are no words. (States between the
// borders of the index's blocks are not reported.)
// `removed`: the event has only keys. If a window group gives up a block while its prefix stays,
// the hole is reported as removed for that group alone.
// `cleared`: everything was removed.
struct Event {
  uint64_t sequence = 0;  // Counts up by one. A gap: the ring overflowed, or memory ran out.
  EventKind kind = EventKind::stored;
  // Only for `stored`: this is a part-block, which can only be copied from. It has fewer words than
  // block_tokens.
  bool tail = false;
  GroupIndex group = 0;
  ContentKey parent{};
  std::vector<ContentKey> keys;
  std::vector<uint32_t> words;
  // The size of the group's blocks; 0 for recurrent groups and for `removed`.
  uint32_t block_tokens = 0;
};

// Everything cached at one instant, as `stored` events, and the sequence number from which the
// stream continues. For observers that join late or saw a gap.
struct EventDump {
  std::vector<Event> events;
  uint64_t next_sequence = 0;
  bool complete = true;  // false: memory was short, and the dump is empty.
};

}  // namespace stemma
