// Capture rules: what is worth saving, and how long a request may wait for it.
//
// Decisions only, from the books and the costs measured so far. Capturer carries them out.
//
// Threading:  functions of the books; the caller holds their lock, which is released while the
//             engine is asked.
// Cost:       O(1), or a few short questions to the engine; nothing allocates.
#pragma once

#include <cstdint>

#include "sequence/books.h"

namespace stemma::sequence {

// Whether what waits in a sequence is worth saving before the sequence is emptied for another use.
bool worth_saving_first(Books& books, uint32_t sequence);
// Whether [0, depth) could ever be restored faster than computed. True until costs were measured.
bool worth_keeping(const Books& books, uint32_t depth) noexcept;
// Whether a request should wait until `unsaved` is saved, because without that everything from
// `kept` on would be lost.
bool worth_waiting(const Books& books, Range unsaved, uint32_t kept) noexcept;
// Whether what waits in a sequence can be saved without evicting anything.
bool fits_without_eviction(const Books& books, uint32_t sequence);

// Where one step of reading a range ends. The step takes about as long as a request may wait. The
// result is after the range's begin, and at most its end. Asks the engine.
uint32_t step_end(Books& books, uint32_t sequence, Range range);
// Whether saving the range takes longer than computing it, because the engine has it in many
// pieces. Asks the engine.
bool dear_to_save(Books& books, uint32_t sequence, Range range);
// The same for what the next step would read of the range.
bool begins_dear(Books& books, uint32_t sequence, Range range);
// The same for the next step of what waits in a sequence.
bool waits_dear(Books& books, uint32_t sequence);
// Whether a request that needs a sequence's place waits for at most one step of its capture. If
// not, it waits for the whole capture.
bool part_will_do(const Books& books) noexcept;

// Whether the boundaries of a turn must be saved as they are reached.
bool keeps_anchors(const Books& books, const TurnRecord& turn) noexcept;
// The size of what is kept at such a boundary.
uint64_t anchor_bytes(const Books& books, uint32_t depth) noexcept;

}  // namespace stemma::sequence
