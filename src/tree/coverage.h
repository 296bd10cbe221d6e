// Coverage answers the one question every engine asks: what is the largest n such that every layer
// group can make positions [0, n) available?
//
// It reads through a view (Presence) which blocks are there on a prompt's verified path, and stores
// nothing itself. A layer group serves a depth n by one of three rules; n = 0 is always served.
//
//   full        every block that holds a position of [0, n) is there.
//   window      the same, only for blocks that hold a position of [max(0, n - window_tokens), n) or
//               of [0, min(n, sink_tokens)). Holes elsewhere do not matter.
//   recurrent   a checkpoint lies exactly at n.
//
// "There" means whole for a block that ends at or before n. The block n lies inside is copied, so
// its leading n % block_tokens positions are enough, and only if the caller allows a copy. Without
// a copy, n is a multiple of every paged group's block_tokens. No n lies inside an unsplittable
// unit.
//
// `servable` is that definition, word for word; `largest_servable` finds the same answer by walking
// down from the limit. Each step goes to the largest depth that one rule allows, never past a
// servable depth, until no rule objects. Full groups and sinks object to everything above one
// depth, so they are checked once; the others are checked again whenever n has moved.
//
// Invariant:  largest_servable(...).n == max{ n <= limit : servable(..., n, ...) }.
// Threading:  immutable; what the view reads must not change during the call.
// Ownership:  nothing is kept after the call.
// Cost:       no allocation. A full group costs one whole_blocks() and at most one valid_tokens().
//             A window group looks at its sink blocks once, then at blocks from the end backwards,
//             each once, until one whole window is unbroken: window_tokens / block_tokens looks at
//             best, every block below the limit if holes are everywhere.
//             A rule that objects starts one more round over the window and recurrent groups (one
//             call each). A round passes a hole, a checkpoint, a unit or a block border, so rounds
//             are few in practice, but each checkpoint that no window can use costs a round.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>

#include "base/check.h"
#include "stemma/ids.h"

namespace stemma::tree {

enum class Reach : uint8_t { full, window, recurrent };

// How one layer group serves a depth.
struct GroupReach {
  Reach kind = Reach::full;
  uint32_t block_tokens = 16;  // A power of two, at most 2^30. Not read for recurrent.
  uint32_t window_tokens = 0;  // At least 1 for window. Not read for the others.
  uint32_t sink_tokens = 0;    // Leading positions a window group always attends to.
};

// Tells which blocks are there on one prompt's verified path. Answers must not change during a
// call.
//
//   valid_tokens(group, block)    Leading positions of that block that are there: block_tokens if
//                                 it is whole and can be shared in place, less if it is only a copy
//                                 source, 0 for a hole. Never called for a recurrent group.
//   whole_blocks(group, limit)    The number of leading blocks that are whole, at most `limit`.
//                                 Called for full groups only: their owner often knows it without
//                                 looking.
//   checkpoint_at_most(group, n)  The deepest checkpoint at or below n, 0 if there is none. Called
//                                 for recurrent groups only.
//   unit_floor(n)                 The largest depth <= n that is not inside an unsplittable unit.
template <class P>
concept Presence = requires(P& present, uint32_t group, uint32_t count) {
  { present.valid_tokens(group, count) } -> std::convertible_to<uint32_t>;
  { present.whole_blocks(group, count) } -> std::convertible_to<uint32_t>;
  { present.checkpoint_at_most(group, count) } -> std::convertible_to<uint32_t>;
  { present.unit_floor(count) } -> std::convertible_to<uint32_t>;
};

struct Serve {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  uint32_t n = 0;

  // The group that lowered n last. kNone if only the limit, a unit or (without a copy) the block
  // grid did. If several groups object to a depth, it is one of them.
  uint32_t limited_by_group = kNone;

  // What n would be if every recurrent group had a checkpoint exactly there. When it is larger than
  // n, this is the depth where a checkpoint would have helped.
  uint32_t n_without_recurrent = 0;
};

// Whether every group can make [0, n) available: the definition, in O(n / block_tokens) a group.
// Requires: n < 2^31.
template <Presence Present>
bool servable(std::span<const GroupReach> groups, uint32_t n, bool allow_copy, Present&& present) {
  if (n == 0) return true;
  if (present.unit_floor(n) != n) return false;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const GroupReach& group = groups[g];
    if (group.kind == Reach::recurrent) {
      if (present.checkpoint_at_most(g, n) != n) return false;
      continue;
    }
    const uint32_t size = group.block_tokens;
    if (n % size != 0 && !allow_copy) return false;
    for (uint32_t block = 0; block * size < n; ++block) {
      const uint32_t begin = block * size;
      const uint32_t end = begin + size;
      const bool in_window = end > n - std::min(n, group.window_tokens);
      const bool in_sinks = begin < std::min(n, group.sink_tokens);
      const bool needed = group.kind == Reach::full || in_window || in_sinks;
      if (needed && present.valid_tokens(g, block) < std::min(size, n - begin)) return false;
    }
  }
  return true;
}

namespace detail {

// The walk down from the limit: n only ever falls, and only to the largest depth some rule allows.
template <class Present>
class Descent {
 public:
  Descent(std::span<const GroupReach> groups, uint32_t limit, bool allow_copy, Present& present)
      : groups_(groups), present_(present), n_(limit) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      whole_from_[g] = std::numeric_limits<uint32_t>::max();
      if (groups_[g].kind == Reach::recurrent) {
        has_recurrent_ = true;
      } else if (!allow_copy) {
        // Powers of two: the largest is a multiple of all.
        grid_tokens_ = std::max(grid_tokens_, groups_[g].block_tokens);
      }
    }
  }

  Serve run() {
    round_down();
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].kind == Reach::full) lower_to_full(g);
      if (groups_[g].kind == Reach::window) lower_to_sinks(g);
    }
    settle(/*with_recurrent=*/false);
    const uint32_t n_without_recurrent = n_;
    if (has_recurrent_) settle(/*with_recurrent=*/true);
    return {n_, limited_by_group_, n_without_recurrent};
  }

 private:
  // Repeats the rules that can object again at a lower depth, until none objects.
  void settle(bool with_recurrent) {
    for (uint32_t before = n_ + 1; n_ != before && n_ != 0;) {
      before = n_;
      for (uint32_t g = 0; with_recurrent && g < groups_.size(); ++g) {
        if (groups_[g].kind == Reach::recurrent) lower(present_.checkpoint_at_most(g, n_), g);
      }
      round_down();
      for (uint32_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].kind == Reach::window) lower_to_window(g);
      }
    }
  }

  void lower(uint32_t n, uint32_t group) {
    if (n >= n_) return;
    n_ = n;
    limited_by_group_ = group;
  }

  // Lowers n to the block grid, if nothing may be copied, and out of any unit.
  void round_down() {
    const uint32_t off_grid = grid_tokens_ - 1;
    do {
      n_ &= ~off_grid;
      n_ = std::min<uint32_t>(n_, present_.unit_floor(n_));
    } while ((n_ & off_grid) != 0);
  }

  // If this block is not whole, lowers n to the end of the positions it holds. For a block that
  // every depth from there up to n needs. If nothing may be copied, round_down() finishes the step.
  void lower_to_block(uint32_t g, uint32_t block) {
    const uint32_t size = groups_[g].block_tokens;
    const uint32_t valid = present_.valid_tokens(g, block);
    if (valid < size) lower(block * size + valid, g);
  }

  void lower_to_full(uint32_t g) {
    const uint32_t size = groups_[g].block_tokens;
    const uint32_t whole = present_.whole_blocks(g, n_ / size);
    if (whole * size < n_) lower_to_block(g, whole);
  }

  void lower_to_sinks(uint32_t g) {
    const GroupReach& group = groups_[g];
    const uint32_t size = group.block_tokens;
    for (uint32_t block = 0; block * size < std::min(n_, group.sink_tokens); ++block) {
      lower_to_block(g, block);
    }
  }

  // Backwards from n. Every depth between a block's hole and n needs that block, so n falls to the
  // hole and the walk goes on below it with a new window. Blocks [whole_from, n / block_tokens) are
  // known to be whole, even if another group has lowered n since. So no block is looked at twice,
  // except the one that n lies inside.
  void lower_to_window(uint32_t g) {
    const GroupReach& group = groups_[g];
    const uint32_t size = group.block_tokens;
    const uint32_t last = n_ / size;
    if (n_ % size != 0) lower_to_block(g, last);  // Stays inside it: n / size does not change.
    uint32_t& whole_from = whole_from_[g];
    whole_from = std::min(whole_from, last);
    while (whole_from * size > n_ - std::min(n_, group.window_tokens)) {
      lower_to_block(g, --whole_from);
    }
  }

  std::span<const GroupReach> groups_;
  Present& present_;
  bool has_recurrent_ = false;
  uint32_t grid_tokens_ = 1;
  uint32_t n_;
  uint32_t limited_by_group_ = Serve::kNone;
  std::array<uint32_t, kMaxGroups> whole_from_;  // Set only for existing groups.
};

}  // namespace detail

// The largest n <= limit that every group can serve.
// Requires: at most kMaxGroups groups; limit < 2^31, and for speed no deeper than the view's path,
// because window groups look at blocks from the limit down.
template <Presence Present>
Serve largest_servable(std::span<const GroupReach> groups, uint32_t limit, bool allow_copy,
                       Present&& present) {
  STEMMA_CHECK(groups.size() <= kMaxGroups);
  return detail::Descent(groups, limit, allow_copy, present).run();
}

}  // namespace stemma::tree
