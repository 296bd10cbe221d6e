// What the calls of a SequenceCache take and return besides turns: limits of saving, what was
// forgotten, and what sequences and sessions hold.
#pragma once

#include <cstdint>

#include "stemma/scope.h"
#include "stemma/sequence_engine.h"

namespace stemma {

struct DrainLimits {
  uint32_t items = 0xFFFF'FFFFU;
  uint64_t bytes = ~uint64_t{0};  // An item that is begun within this limit is finished.
  // Returns after about this long, in the middle of a capture if need be; the next call continues
  // it. (An engine call that has begun is not interrupted. If the engine moves ranges, each call is
  // short enough for 5 ms.)
  uint64_t ns = ~uint64_t{0};
  // true: may evict entries that were saved before. false: an item that finds no room waits. It
  // stays live, and is saved when its sequence is needed for something else.
  bool evict = false;
  // Also saves items that take longer to save than to compute, because the engine has them in many
  // pieces (answers that were computed beside others). Set it when there is nothing else to do.
  bool dear = true;
  // The longest that one read of the engine should take. Other calls of the engine wait for it.
  uint64_t step_ns = 4'800'000;
};
struct Drained {
  uint32_t items = 0;  // Taken from the queue, saved or not.
  uint32_t saved = 0;
  uint64_t bytes = 0;
  bool more = false;   // drain() stopped at its limits: there may be more to save.
  bool waits = false;  // Threads still work on bytes that were read: call again in a moment.
  // Time spent moving running prompts to the cells of dropped idle sequences, which speeds them up.
  uint64_t moving_ns = 0;
};

// How far hand_on() came.
struct HandedOn {
  uint32_t parts = 0;  // Parts that the listener keeps.
  uint64_t bytes = 0;  // The size of these parts.
  uint64_t next = 0;   // Where the next call continues, unless `over`.
  bool over = true;
};

// What became of the parts that admit() was given.
struct Admitted {
  uint32_t taken = 0;
  uint32_t present = 0;  // Parts that were already there.
  // Parts for which there was no room, or no place for their kind, or that follow a gap.
  uint32_t refused = 0;
  uint64_t bytes = 0;  // The size of the parts taken.
};

// What truncate() forgot, and what it could not.
struct Truncated {
  uint32_t sequences = 0;    // Idle sequences that were cut or emptied.
  uint64_t live_tokens = 0;  // Positions these sequences gave up.
  uint32_t segments = 0;     // Segments that are no longer found.
  uint32_t states = 0;       // States that are no longer found.
  uint32_t checkpoints = 0;  // Checkpoints that are no longer found.
  uint32_t logits = 0;       // Logits that are no longer found.
  // Sequences of turns under way that hold more than `keep` positions of the prompt.
  uint32_t in_use = 0;
};

enum class SequenceState : uint8_t {
  free,    // Empty.
  idle,    // Holds what its last turn left.
  leased,  // Belongs to a turn.
  broken,  // The engine failed to clear it; clearing is tried again before it is used.
};
struct SequenceInfo {
  SequenceState state = SequenceState::free;
  uint64_t generation = 0;      // Counts how often its contents were given up.
  uint32_t length = 0;          // Words known to be in it.
  uint32_t unsaved_tokens = 0;  // Positions that wait to be saved.
  bool approximate = false;     // Shifted: only what lies before the shift is ever reused.
};
struct SessionInfo {
  bool known = false;
  bool in_flight = false;
  bool resident = false;  // Its last sequence still holds what the session left.
  SequenceId sequence{};  // Valid if resident or in flight.
  uint64_t turns = 0;     // Finished or not.
  uint32_t length = 0;    // Of its last finished turn.
  uint64_t last_used_ns = 0;
};

// One thing that can be reused now.
struct SequenceContent {
  enum class Kind : uint8_t { live, segment_path, state, checkpoint, logits };
  Kind kind = Kind::live;
  Scope scope;
  uint32_t depth = 0;
  uint64_t bytes = 0;     // 0 if live.
  SequenceId sequence{};  // If live.
  bool leased = false;
};

}  // namespace stemma
