// Copies one piece on the CPU and sums it in the same pass: the bytes that arrive are the bytes
// that were summed, even if the source changes meanwhile.
//
// Threading:  pure functions. Other threads see the copy after this one has called
//             base::end_of_word_copies().
// Cost:       one pass where runs have multiples of 8 bytes or a page is one run; otherwise the
//             bytes go through a buffer of 4 KiB on the stack.
#pragma once

#include <cstdint>

#include "mover/piece.h"

namespace stemma::mover {

// Returns the piece's share of its block's sum; 0 if it is not to be summed.
uint64_t copy_piece(const Piece& piece, const Shape& shape, Way way, bool sum) noexcept;

}  // namespace stemma::mover
