// CellMap: which cells of llama.cpp's memory the positions of each sequence lie in.
//
// llama.cpp does not report this, and it matters: reading adjacent cells takes one copy a layer,
// and every gap takes one more. So this class repeats what llama.cpp v0.5.0 does for full attention
// in a unified context (find_slot, seq_rm, seq_cp and state_read of llama-kv-cache.cpp): cells are
// given out in ascending order from a head, holes are filled, and the head goes back to the lowest
// cell that is freed.
//
// It is an estimate, for decisions about time. If llama.cpp does something else (a decode that
// failed halfway, a newer release), only the counts are wrong.
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
  // `pass_tokens`: how many tokens llama.cpp computes at a time (n_ubatch). Throws std::bad_alloc.
  // Nothing else throws: if memory runs out, the map starts over.
  CellMap(uint32_t sequences, uint32_t cells, uint32_t pass_tokens);

  void computed(std::span<const BatchItem> batch) noexcept;
  // Positions from n on are gone.
  void cut(SequenceId sequence, uint32_t n) noexcept;
  // `to` got the range from `from`, in the same cells.
  void copied(SequenceId from, SequenceId to, Range range) noexcept;
  // `saved` was loaded in one call; the sequence keeps `wanted` of it.
  void loaded(SequenceId sequence, Range saved, Range wanted) noexcept;

  // How many pieces the range lies in; at least 1.
  uint32_t pieces(SequenceId sequence, Range range) const noexcept;

 private:
  static constexpr uint32_t kUnknown = 0xFFFF'FFFFU;
  using Cells = std::vector<uint32_t>;  // By position.

  // Takes `count` free cells, and appends them to `out`. Returns false if there are too few; then
  // this map differs from what llama.cpp has.
  bool take(uint32_t count, Cells& out);
  // Removes one owner of a cell. `lowest` becomes the lowest cell that became free.
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
