// Room promises: how much of the context a plan needs, and how much is promised to other turns.
//
// A turn is promised room for its prompt and its answer when it begins, and takes it later. Until
// then no other turn gets that room. These functions only count; Clearer makes room.
//
// Threading:  functions of the books; the caller holds their lock.
// Cost:       O(sequences^2) at most. could_have() and fits() may throw std::bad_alloc, as Room
//             does.
#pragma once

#include <cstdint>

#include "sequence/books.h"

namespace stemma::sequence {

// Positions that must be free to carry a plan out.
uint64_t needs_room(const Books& books, const TurnRecord& turn, const Plan& plan) noexcept;
// Room that turns on other sequences were promised and have not taken.
uint64_t promised_to_others(const Books& books, uint32_t sequence);
// Whether a turn on another sequence than this one plans to share what `source` holds. That turn
// was promised no room for it, so it has to stay.
bool is_source(const Books& books, uint32_t source, uint32_t sequence) noexcept;
// Whether a sequence that holds [0, kept) could have this many more positions if all others that
// may be emptied, except `spared`, were emptied.
bool could_have(Books& books, uint32_t sequence, uint32_t kept, uint64_t tokens, uint32_t spared);
// Whether a plan can have the room that it needs.
bool fits(Books& books, const TurnRecord& turn, const Plan& plan);

}  // namespace stemma::sequence
