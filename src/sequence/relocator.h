// Relocator: moves what a turn has computed so far to lower cells of a unified context.
//
// llama.cpp's attention looks at every cell up to the highest in use. A prompt that began while
// idle sequences waited to be saved lies behind their cells, and still pays for these after they
// were dropped. So the prompt is read into buffers, cleared, and loaded again into the lowest free
// cells. On a GPU that takes as long as a few hundred tokens.
//
// Invariant:  the turn holds the same positions afterwards, or it is lost and can only end. A move
//             is tried only if it gains more than it costs, and if nothing of the sequence is
//             shared.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the clearer outlive it.
// Cost:       O(sequences) where nothing moves. Nothing throws.
#pragma once

#include <cstdint>
#include <vector>

#include "sequence/books.h"
#include "sequence/clearer.h"

namespace stemma::sequence {

class Relocator {
 public:
  Relocator(Books& books, Clearer& clearer) noexcept : books_(books), clearer_(clearer) {}

  // Moves the turns whose prompts are being computed, if it is worth it. Adds the time it took to
  // `spent_ns`.
  void move_down(uint64_t& spent_ns) noexcept;

 private:
  struct Part {
    Range range;
    uint32_t buffer = RangeMover::kNone;
    uint64_t bytes = 0;
  };

  bool worth_moving(const TurnRecord& turn) const;
  // How many tokens fit into a buffer: at least a segment's.
  uint64_t most_tokens() const noexcept;
  // Reads [0, computed) of the turn into buffers. Returns false if it could not read all of it.
  bool read(const TurnRecord& turn);
  Result<void> put_back(const TurnRecord& turn);
  void give_buffers_back();

  Books& books_;
  Clearer& clearer_;
  std::vector<Part> parts_;
};

}  // namespace stemma::sequence
