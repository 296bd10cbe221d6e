// CellMap: which cells of llama.cpp's memory the positions of each sequence lie in.
//
// llama.cpp does not tell, and it matters: reading cells that lie side by side takes one copy a layer, and every gap
// takes one more. So this follows what llama.cpp v0.5.0 does for full attention in a unified context (find_slot,
// seq_rm, seq_cp and state_read of llama-kv-cache.cpp): cells are given out in ascending order from a head, holes are
// filled, and the head goes back to the lowest cell that is freed.
//
// It is an estimate, for decisions about time. Where llama.cpp does something else (a decode that failed halfway, a
// newer release), counts are wrong and nothing else is.
//
// Threading:  one thread at a time.
// Cost:       4 bytes a position and 2 a cell; pieces() looks at every position of its range once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/language_model.h"
#include "stemma/sequence_engine.h"

namespace stemma::engine {

class CellMap {
 public:
  CellMap() = default;
  // `pass_tokens`: as many tokens as llama.cpp computes at a time (n_ubatch). Throws std::bad_alloc. Nothing else throws:
  // without memory it starts over.
  CellMap(uint32_t sequences, uint32_t cells, uint32_t pass_tokens);

  void computed(std::span<const BatchItem> batch) noexcept;
  // Positions from n on are gone.
  void cut(SequenceId sequence, uint32_t n) noexcept;
  // `to` has what `from` has there, in the same cells.
  void copied(SequenceId from, SequenceId to, Range range) noexcept;
  // `saved` was loaded in one call; of it the sequence keeps `wanted`.
  void loaded(SequenceId sequence, Range saved, Range wanted) noexcept;

  // In how many pieces the range lies; 1 at least.
  uint32_t pieces(SequenceId sequence, Range range) const noexcept;

 private:
  static constexpr uint32_t kUnknown = 0xFFFF'FFFFU;
  using Cells = std::vector<uint32_t>;  // By position.

  // Takes so many free cells, and appends them. False: there are too few; then this map is not what llama.cpp has.
  bool take(uint32_t count, Cells& out);
  // One owner less. The lowest cell that became free is noted.
  void let_go(uint32_t cell, uint32_t& lowest) noexcept;
  void place(SequenceId sequence, uint32_t position, uint32_t cell);
  void start_over() noexcept;

  std::vector<Cells> cells_;      // By sequence.
  std::vector<uint16_t> owners_;  // By cell.
  uint32_t used_ = 0;             // Cells with an owner.
  uint32_t head_ = 0;             // Where llama.cpp begins to look for free cells.
  uint32_t pass_tokens_ = 1;
  Cells found_;           // Scratch.
  mutable Cells sorted_;  // Scratch.
};

}  // namespace stemma::engine
