// Room: how many positions of the engine's context are taken, and by which sequences.
//
// The engine has no call for that. A copy shares positions with its source until one of the two
// gives them up. So positions are counted in extents: runs of positions that one sequence computed
// or loaded. Every sequence that shares an extent has the first few of its positions.
//
// Threading:  one thread at a time.
// Cost:       O(sequences * log extents) for each extent that is cut. A sequence has one extent for
//             its own positions, and one for each depth at which a sequence it shares with ends.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/sequence_engine.h"

namespace stemma::sequence {

class Room {
 public:
  // Throws std::bad_alloc.
  void create(const EngineTraits& traits);

  uint32_t length(SequenceId sequence) const noexcept { return length_of(at(sequence)); }
  uint64_t used() const noexcept { return used_; }
  // How many more positions the sequence can have.
  uint64_t free_for(SequenceId sequence) const noexcept;
  // What free_for(sequence) would be if the sequence held only [0, keep) of what it holds, and the
  // sequences marked in `gone` held nothing. Throws std::bad_alloc.
  uint64_t free_if(SequenceId sequence, uint32_t keep, const std::vector<uint8_t>& gone) const;

  // Takes memory for what follows: share() from `from`, or the next longer set_length().
  // Throws std::bad_alloc; nothing has changed then.
  void prepare(SequenceId sequence, SequenceId from);
  // Longer: adds positions of its own. Shorter: gives up positions from n on.
  void set_length(SequenceId sequence, uint32_t n) noexcept;
  // Gives `to`, which is empty, the first n positions of `from`. Requires prepare(to, from), and
  // that `from` has them.
  void share(SequenceId from, SequenceId to, uint32_t n) noexcept;

  // Runs of positions that are counted together, of all sequences.
  size_t extents() const noexcept { return extents_.size() - free_extents_.size(); }
  void check_invariants() const;

 private:
  struct Piece {
    uint32_t extent = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  struct Extent {
    uint32_t users = 0;
    uint32_t begin = 0;
    uint32_t end = 0;  // The most that any user has.
  };
  using Pieces = std::vector<Piece>;

  static uint32_t length_of(const Pieces& pieces) noexcept {
    return pieces.empty() ? 0 : pieces.back().end;
  }
  Pieces& at(SequenceId sequence) noexcept { return pieces_[to_index(sequence)]; }
  const Pieces& at(SequenceId sequence) const noexcept { return pieces_[to_index(sequence)]; }
  uint32_t new_extent(uint32_t begin) noexcept;
  void join(Pieces& pieces) noexcept;
  // Recounts what the extent takes.
  void settle(uint32_t extent) noexcept;

  bool unified_ = true;
  uint64_t context_ = 0;
  uint64_t used_ = 0;
  std::vector<Pieces> pieces_;
  std::vector<Extent> extents_;
  std::vector<uint32_t> free_extents_;
};

}  // namespace stemma::sequence
