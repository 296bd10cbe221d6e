// CellRuns: which positions of a sequence lie side by side in llama.cpp's memory.
//
// llama.cpp gives the tokens of one forward pass cells one after the other, and does not tell which. A chunk of a prompt
// lies together. The tokens of several answers that are computed together lie in turns, so that each is a run of its
// own. Reading a run takes about as long as a call, however short it is.
//
// It is an estimate, for decisions about time: where the memory is full of holes, there are more runs than it says.
// Threading:  one thread at a time.
// Cost:       4 bytes a run; a question is O(log runs).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/language_model.h"
#include "stemma/sequence_engine.h"

namespace stemma::engine {

class CellRuns {
 public:
  // Throws std::bad_alloc, as everything but cut() and count().
  explicit CellRuns(uint32_t sequences) : begins_(sequences) {}

  void computed(std::span<const BatchItem> batch);
  // Positions from n on are gone.
  void cut(SequenceId sequence, uint32_t n) noexcept;
  // `to` has what `from` has there, in the same cells.
  void copied(SequenceId from, SequenceId to, Range range);
  // It was loaded in one call.
  void loaded(SequenceId sequence, Range range);

  // In how many runs the range lies; 1 at least.
  uint32_t count(SequenceId sequence, Range range) const noexcept;

 private:
  // Ascending: positions at which a run begins.
  std::vector<uint32_t>& begins(SequenceId sequence) { return begins_[to_index(sequence)]; }
  void begin_run(SequenceId sequence, uint32_t position);

  std::vector<std::vector<uint32_t>> begins_;
  // The token that got the last cell.
  SequenceId last_sequence_{};
  uint32_t next_position_ = 0;
  bool known_ = false;
};

}  // namespace stemma::engine
