// Capture rules: what is worth saving, and how long a request may wait for it.
//
// Decisions only, from the books and the costs measured so far. Capturer carries them out.
//
// Threading:  pure functions of the books; the caller holds their lock.
// Cost:       O(1); nothing allocates.
#pragma once

#include <cstdint>

#include "sequence/books.h"

namespace stemma::sequence {

// Whether what waits in a sequence is worth saving before the sequence is emptied for somebody
// else.
bool worth_saving_first(const Books& books, uint32_t sequence) noexcept;
// Whether [0, depth) could ever be restored faster than computed. Yes until something was measured.
bool worth_keeping(const Books& books, uint32_t depth) noexcept;
// Whether a request should wait until `unsaved` is saved, because without that everything from
// `kept` on would be lost.
bool worth_waiting(const Books& books, Range unsaved, uint32_t kept) noexcept;
// Whether what waits in a sequence can be saved without evicting anything.
bool fits_without_eviction(const Books& books, uint32_t sequence);

// How many positions are read in one step: about as many as a request may wait for.
uint32_t step_tokens(const Books& books) noexcept;
// Whether a request that needs a sequence's place waits for one step of its capture at most. If
// not, it waits for all of it.
bool part_will_do(const Books& books) noexcept;

// Whether the boundaries of a turn must be saved as they are reached.
bool keeps_anchors(const Books& books, const TurnRecord& turn) noexcept;
// The size of what is kept at such a boundary.
uint64_t anchor_bytes(const Books& books, uint32_t depth) noexcept;

}  // namespace stemma::sequence
