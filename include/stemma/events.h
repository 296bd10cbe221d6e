// What a cache stores and removes, as a numbered stream for routers and other observers.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"

namespace stemma {

enum class EventKind : uint8_t { stored, removed, cleared };

// Every event but `cleared` is about one layer group: what was stored for (group, key) is there
// until it is removed for the same two, or all is cleared. A key names a prefix in steps of the
// index, the smallest blocks of all groups.
//
// `stored`, of the group whose blocks the index consists of (0, or kMaxGroups where the index has
// cells of its own: see Options): keys[i] is the content key of the i-th block after `parent`;
// `words` are their words, back to back (a media position is 2^31 or more and means nothing outside
// this process).
// `stored`, of every other group: it has the block, or of a recurrent group the state, that ends
// where the prefix keys[i] ends; neither parent nor words. (States between the borders of the
// index's blocks are not told of.)
// `removed`: keys only. A block that a window group gave up while its prefix stays is a hole: told
// as removed of that group alone. `cleared`: everything went.
struct Event {
  uint64_t sequence = 0;  // Counts up by one; a gap: the ring overflowed, or memory ran out.
  EventKind kind = EventKind::stored;
  // Of `stored`: a part-block, which is only ever copied from. Its words are fewer than
  // block_tokens.
  bool tail = false;
  GroupIndex group = 0;
  ContentKey parent{};
  std::vector<ContentKey> keys;
  std::vector<uint32_t> words;
  uint32_t block_tokens =
      0;  // Of the group's blocks; 0 of recurrent groups, and of what was removed.
};

// Everything cached at one instant, as `stored` events, and the sequence number from which the
// stream continues. For observers that join late or saw a gap.
struct EventDump {
  std::vector<Event> events;
  uint64_t next_sequence = 0;
  bool complete = true;  // false: there was no memory for it, and nothing is in it.
};

}  // namespace stemma
