// LiveIndex: which words the engine's sequences hold, and how much of a prompt each of them shares.
//
// A sequence is a path of the tree: whole cells, shared with every sequence that has the same
// words, and a tail of its own with fewer words than a cell. Two sequences share a prefix of whole
// cells exactly where their paths have the same cells. So bisection finds what a sequence has in
// common with a walked prompt, without comparing words again.
//
// Invariant:  the words of a sequence are those appended since it was last cleared, less what was
//             trimmed; a cell lives as long as a path goes through it.
// Threading:  one thread at a time.
// Ownership:  a scope is forgotten with its last sequence.
// Cost:       match(): one walk of the prompt, and O(log length) for each sequence of its scope.
//             append and trim: O(words). 36 bytes and 4 a word for each distinct cell, 4 bytes a
//             cell for each sequence.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "pool/block_pool.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/sequence_engine.h"
#include "tree/prefix_tree.h"

namespace stemma::sequence {

class LiveIndex {
 public:
  static constexpr uint32_t kCellTokens = 16;

  // `positions`: how many all sequences together may hold. Returns false if there is no memory.
  [[nodiscard]] bool create(uint32_t sequences, uint64_t positions);

  // Appends words to the sequence. Requires: the sequence is empty, or of this scope.
  // Error: out_of_memory, out_of_range (more than all sequences may hold); nothing changed.
  Result<void> append(SequenceId sequence, const Scope& scope, std::span<const uint32_t> words);
  // Forgets words from n on. Requires n <= length().
  void trim(SequenceId sequence, uint32_t n);
  void clear(SequenceId sequence) { trim(sequence, 0); }

  uint32_t length(SequenceId sequence) const noexcept { return at(sequence).length(); }
  // The words of [begin, end). Requires end <= length().
  void read(SequenceId sequence, uint32_t begin, uint32_t end, std::vector<uint32_t>& out) const;

  struct Match {
    SequenceId sequence{};
    uint32_t positions = 0;  // At least 1.
  };
  // The sequences that share a prefix with these words, ordered by number.
  void match(const Scope& scope, std::span<const uint32_t> words, std::vector<Match>& out);

  // Whether any sequence is of this scope.
  bool knows(const Scope& scope) const noexcept { return roots_.count(scope) != 0; }

  uint64_t bytes() const noexcept;
  void check_invariants() const;

 private:
  struct Line {
    CellIndex root = kNoCell;
    std::vector<CellIndex> cells;
    std::vector<uint32_t> tail;
    uint32_t length() const noexcept {
      return static_cast<uint32_t>(cells.size()) * kCellTokens + static_cast<uint32_t>(tail.size());
    }
    CellIndex tip() const noexcept { return cells.empty() ? root : cells.back(); }
  };

  Line& at(SequenceId sequence) noexcept { return lines_[to_index(sequence)]; }
  const Line& at(SequenceId sequence) const noexcept { return lines_[to_index(sequence)]; }
  // The place of a cell in the books. Cells are numbered after the tree's sentinel.
  uint32_t place(CellIndex cell) const noexcept { return cell - 1; }
  [[nodiscard]] bool prepare(uint32_t cells);  // Takes memory for that many more cells.
  CellIndex new_cell() noexcept;
  // Removes `cell` and the unneeded cells above it, up to `end`, which stays.
  void free_up_to(CellIndex cell, CellIndex end) noexcept;
  void let_go(CellIndex root) noexcept;

  tree::PrefixTree tree_;
  pool::BlockPool cells_;
  std::vector<Line> lines_;
  std::unordered_map<Scope, CellIndex> roots_;
  std::vector<CellIndex> walked_;  // Scratch of match().
};

}  // namespace stemma::sequence
