// RestorePlan: which stored entries could bring a prompt back, and to which depth those that are there do.
//
// It names every entry that some depth beyond what is cached could need: one list, for one question to the
// tiers. Whatever is there then, deepest() is the largest depth that every layer group serves by the rules
// of tree/coverage.h out of what is cached and what is there, and needed() is what has to be loaded for a
// depth, no more: of a window group no block behind the window, of a recurrent one a single checkpoint.
//
// Depths are multiples of the unit, the largest block of all groups (16 where there is none): only whole
// blocks are stored, and no two groups may stand at different depths. No depth is inside a media item.
//
// Invariant:  needed(deepest(there, n)) are entries that are there.
// Threading:  immutable.
// Ownership:  keeps nothing of its arguments but the grid, which outlives it.
// Cost:       made in O(blocks of all groups up to `last`), besides the keys; deepest() as coverage.h says.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stemma/options.h"
#include "stemma/stats.h"
#include "stemma/tier_stack.h"
#include "tier/prompt_keys.h"
#include "tree/coverage.h"

namespace stemma::tier {

// How blocks and checkpoints of a cache's groups lie in tiers.
struct BlockGrid {
  // Error: invalid_argument (naming the group).
  static Result<void> check(std::span<const GroupOptions> given);
  // Requires what check() lets pass.
  BlockGrid(std::span<const GroupOptions> given, uint64_t fingerprint);

  EntryKey key(GroupIndex group, const ContentKey& chain) const noexcept;
  // Of the group's block of that number; of a recurrent group, of the checkpoint where that unit ends.
  EntryInfo info(GroupIndex group, uint32_t block) const noexcept;
  // On which grid the group's keys are.
  uint32_t block_tokens(GroupIndex group) const noexcept;

  std::vector<GroupOptions> groups;
  uint64_t layout = 0;
  uint32_t unit_tokens = 16;
  // Whether every depth needs all that a shallower one does: all groups have full attention.
  bool nested = true;
  std::vector<tree::GroupReach> reaches;
};

class RestorePlan {
 public:
  struct Place {
    GroupIndex group = 0;
    uint32_t block = 0;  // Of a recurrent group: unit.
  };

  // `cached`: what a lookup of the prompt found. `last`: a multiple of the unit, within the prompt.
  RestorePlan(const BlockGrid& grid, PromptKeys& keys, const Report& cached, uint32_t last);

  // In the order of loading: unit by unit, the first group last, which is the one that the tokens are
  // credited to where depths are nested.
  std::span<const Wanted> wanted() const noexcept { return wanted_; }
  const Place& place(uint32_t index) const noexcept { return places_[index]; }
  // The largest depth that can be served with the entries whose mask is not 0. 0: none.
  uint32_t deepest(std::span<const LevelMask> there) const;
  // What that depth needs besides what is cached, in the order of loading.
  std::vector<uint32_t> needed(uint32_t depth) const;

 private:
  static constexpr uint32_t kHere = std::numeric_limits<uint32_t>::max();  // Cached.
  static constexpr uint32_t kNone = kHere - 1;                             // Of use to no depth.
  class Presence;

  const BlockGrid& grid_;
  uint32_t last_;
  std::vector<key::UnitSpan> units_;
  std::vector<Wanted> wanted_;
  std::vector<Place> places_;
  std::vector<std::vector<uint32_t>> index_;  // By group and block.
};

}  // namespace stemma::tier
