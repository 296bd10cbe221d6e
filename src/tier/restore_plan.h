// RestorePlan: which stored entries could bring a prompt back, and to which depth the entries found
// in the tiers do.
//
// It lists every entry that some depth beyond what is cached could need, so that one question to
// the tiers is enough. Given the answer, deepest() returns the largest depth that every layer group
// can serve, by the rules of tree/coverage.h, from what is cached and what is stored. needed()
// returns what must be loaded for a depth, and no more: for a window group no block behind the
// window, for a recurrent group a single checkpoint.
//
// Depths are multiples of the unit, the largest block of all groups (16 if there is none): only
// whole blocks are stored, and all groups must be at the same depth. No depth is inside a media
// item.
//
// Invariant:  every entry in needed(deepest(there, n)) is there.
// Threading:  immutable.
// Ownership:  keeps only the grid of its arguments; the grid must outlive it.
// Cost:       creation is O(blocks of all groups up to `last`), besides the keys; deepest() as in
//             coverage.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stemma/options.h"
#include "stemma/stats.h"
#include "stemma/tier/tier_stack.h"
#include "tier/prompt_keys.h"
#include "tree/coverage.h"

namespace stemma::tier {

// How blocks and checkpoints of a cache's groups map to tiers.
struct BlockGrid {
  // Error: invalid_argument (naming the group).
  static Result<void> check(std::span<const GroupOptions> given);
  // Requires groups that pass check().
  BlockGrid(std::span<const GroupOptions> given, uint64_t fingerprint);

  EntryKey key(GroupIndex group, const ContentKey& chain) const noexcept;
  // For the group's block with that number; for a recurrent group, the checkpoint at the end of
  // that unit.
  EntryInfo info(GroupIndex group, uint32_t block) const noexcept;
  // The grid of the group's keys.
  uint32_t block_tokens(GroupIndex group) const noexcept;

  std::vector<GroupOptions> groups;
  uint64_t layout = 0;
  uint32_t unit_tokens = 16;
  // Whether every depth needs all that shallower ones need: all groups have full attention.
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

  // In the order of loading: unit by unit, the first group last. If depths are nested, tokens are
  // credited to that group.
  std::span<const Wanted> wanted() const noexcept { return wanted_; }
  const Place& place(uint32_t index) const noexcept { return places_[index]; }
  // The largest depth that the entries with a nonzero mask can serve. 0: none.
  uint32_t deepest(std::span<const LevelMask> there) const;
  // What that depth needs beyond what is cached, in the order of loading.
  std::vector<uint32_t> needed(uint32_t depth) const;

 private:
  static constexpr uint32_t kHere = std::numeric_limits<uint32_t>::max();  // Cached.
  static constexpr uint32_t kNone = kHere - 1;                             // No depth needs it.
  class Presence;

  const BlockGrid& grid_;
  uint32_t last_;
  std::vector<key::UnitSpan> units_;
  std::vector<Wanted> wanted_;
  std::vector<Place> places_;
  std::vector<std::vector<uint32_t>> index_;  // By group and block.
};

}  // namespace stemma::tier
