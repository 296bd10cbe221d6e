// LastUses remembers which cell each session used last, and which session used a cell last, so that
// ending a session can mark what only it would have used again.
//
// Invariant:  hints only: a missing one costs a worse eviction, never a wrong answer.
// Threading:  one thread at a time.
// Cost:       O(1) a call; at most five quarters as many sessions as cells are remembered.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "stemma/ids.h"
#include "tree/prefix_tree.h"

namespace stemma::cache {

class LastUses {
 public:
  explicit LastUses(const tree::PrefixTree& tree) noexcept : tree_(tree) {}
  // At most this many cells can be in use. Call it before anything else.
  void set_cells(uint64_t cells) noexcept { most_ = cells + cells / 4 + kSpare; }

  // A request of this session (or of none) used the path that ends with `cell`.
  void used(SessionId session, CellIndex cell);
  // Forgets the session. Returns the cell that it used last, if nobody used it since; or kNoCell.
  CellIndex end(SessionId session) noexcept;

  size_t size() const noexcept { return sessions_.size(); }
  uint64_t bytes() const noexcept {
    return (sessions_.size() + last_.size()) * 32 +
           (sessions_.bucket_count() + last_.bucket_count()) * sizeof(void*);
  }

 private:
  struct Use {
    CellIndex cell;
    uint32_t birth;
  };
  static constexpr uint64_t kSpare = 64;
  // Whether the use is of the cell as it is now.
  bool is_current(const Use& use) const noexcept {
    return tree_.is_live(use.cell) && tree_.birth(use.cell) == use.birth;
  }

  const tree::PrefixTree& tree_;
  uint64_t most_ = kSpare;
  std::unordered_map<SessionId, Use> sessions_;
  std::unordered_map<CellIndex, SessionId> last_;
};

}  // namespace stemma::cache
