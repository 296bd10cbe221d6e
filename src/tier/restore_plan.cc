#include "tier/restore_plan.h"

#include <algorithm>
#include <bit>

#include "key/content_key.h"

namespace stemma::tier {

// ---- The grid ----

Result<void> BlockGrid::check(std::span<const GroupOptions> groups) {
  if (groups.empty() || groups.size() > kMaxGroups) {
    return Error(Errc::invalid_argument, "tiers need the cache's groups, 1 to 8",
                 static_cast<uint32_t>(groups.size()));
  }
  for (GroupIndex g = 0; g < groups.size(); ++g) {
    const GroupOptions& group = groups[g];
    if (group.block_bytes == 0) {
      return Error(Errc::invalid_argument, "a stored group needs block_bytes", g);
    }
    if (group.attention == Attention::recurrent) continue;
    if (!std::has_single_bit(group.block_tokens) || group.block_tokens > key::kMaxBlockWords) {
      return Error(Errc::invalid_argument,
                   "a stored group's block_tokens is a power of two, 1 to 1024", g);
    }
    if (group.attention == Attention::window && group.window_tokens == 0) {
      return Error(Errc::invalid_argument, "a stored window group needs window_tokens", g);
    }
  }
  return {};
}

BlockGrid::BlockGrid(std::span<const GroupOptions> given, uint64_t fingerprint)
    : groups(given.begin(), given.end()), layout(fingerprint) {
  uint32_t largest = 0;
  for (const GroupOptions& group : groups) {
    const bool recurrent = group.attention == Attention::recurrent;
    if (!recurrent) largest = std::max(largest, group.block_tokens);
    nested = nested && group.attention == Attention::full;
    tree::GroupReach reach;
    reach.kind = recurrent                              ? tree::Reach::recurrent
                 : group.attention == Attention::window ? tree::Reach::window
                                                        : tree::Reach::full;
    reach.block_tokens = group.block_tokens;
    reach.window_tokens = group.window_tokens;
    reach.sink_tokens = group.sink_tokens;
    reaches.push_back(reach);
  }
  if (largest != 0) unit_tokens = largest;
}

uint32_t BlockGrid::block_tokens(GroupIndex group) const noexcept {
  return reaches[group].kind == tree::Reach::recurrent ? unit_tokens : groups[group].block_tokens;
}

EntryKey BlockGrid::key(GroupIndex group, const ContentKey& chain) const noexcept {
  const bool recurrent = reaches[group].kind == tree::Reach::recurrent;
  const EntryKind kind = recurrent ? EntryKind::checkpoint : EntryKind::block;
  return entry_key(chain, kind, static_cast<uint8_t>(group), layout);
}

EntryInfo BlockGrid::info(GroupIndex group, uint32_t block) const noexcept {
  const uint32_t tokens = block_tokens(group);
  // A state covers everything before it.
  const bool recurrent = reaches[group].kind == tree::Reach::recurrent;
  return {.begin = recurrent ? 0 : block * tokens,
          .end = (block + 1) * tokens,
          .layout = layout,
          .bytes = groups[group].block_bytes};
}

// ---- The plan ----

// Answers coverage.h's questions from the cache and from the entries that exist.
class RestorePlan::Presence {
 public:
  Presence(const RestorePlan& plan, std::span<const LevelMask> there) noexcept
      : plan_(plan), there_(there) {}

  uint32_t valid_tokens(uint32_t group, uint32_t block) const {
    return has(group, block) ? plan_.grid_.groups[group].block_tokens : 0;
  }
  uint32_t whole_blocks(uint32_t group, uint32_t limit) const {
    uint32_t blocks = 0;
    while (blocks < limit && has(group, blocks)) ++blocks;
    return blocks;
  }
  uint32_t checkpoint_at_most(uint32_t group, uint32_t depth) const {
    const uint32_t tokens = plan_.grid_.unit_tokens;
    uint32_t unit = depth / tokens;
    while (unit > 0 && !has(group, unit - 1)) --unit;
    return unit * tokens;
  }
  uint32_t unit_floor(uint32_t depth) const { return key::floor_to_unit(plan_.units_, depth); }

 private:
  bool has(uint32_t group, uint32_t block) const {
    const uint32_t index = plan_.index_[group][block];
    return index == kHere || (index != kNone && there_[index] != 0);
  }

  const RestorePlan& plan_;
  std::span<const LevelMask> there_;
};

RestorePlan::RestorePlan(const BlockGrid& grid, PromptKeys& keys, const Report& cached,
                         uint32_t last)
    : grid_(grid), last_(last), index_(grid.groups.size()) {
  for (const key::MediaSpan& span : keys.units()) units_.push_back({span.begin, span.end});
  for (uint32_t unit = 0; unit < last / grid.unit_tokens; ++unit) {
    for (auto g = static_cast<GroupIndex>(grid.groups.size()); g-- > 0;) {
      const tree::GroupReach& reach = grid.reaches[g];
      const uint32_t each = grid.unit_tokens / grid.block_tokens(g);
      const std::span<const ContentKey> chain =
          keys.chain(grid.block_tokens(g), last / grid.block_tokens(g));
      for (uint32_t b = unit * each; b < (unit + 1) * each; ++b) {
        Wanted wanted{.key = grid.key(g, chain[b]), .info = grid.info(g, b)};
        const uint32_t end = wanted.info.end;
        uint32_t index = static_cast<uint32_t>(wanted_.size());
        if (reach.kind == tree::Reach::full) {
          if (end <= cached.matched_tokens) index = kHere;
        } else if (end <= cached.reused_tokens) {
          // The cache has what that depth needs; the other blocks are of no use to any deeper one.
          const bool in_window =
              reach.kind == tree::Reach::window &&
              (end > cached.reused_tokens - std::min(cached.reused_tokens, reach.window_tokens) ||
               wanted.info.begin < reach.sink_tokens);
          index = in_window ? kHere : kNone;
        }
        index_[g].push_back(index);
        if (index >= kNone) continue;
        wanted.tokens = g == 0 ? grid.block_tokens(g) : 0;
        wanted_.push_back(wanted);
        places_.push_back({g, b});
      }
    }
  }
}

uint32_t RestorePlan::deepest(std::span<const LevelMask> there) const {
  const Presence presence(*this, there);
  return tree::largest_servable(grid_.reaches, last_, /*allow_copy=*/false, presence).n;
}

std::vector<uint32_t> RestorePlan::needed(uint32_t depth) const {
  std::vector<uint32_t> needed;
  for (uint32_t i = 0; i < wanted_.size(); ++i) {
    const EntryInfo& info = wanted_[i].info;
    if (info.end > depth) continue;
    const tree::GroupReach& reach = grid_.reaches[places_[i].group];
    const bool in_window = info.end > depth - std::min(depth, reach.window_tokens);
    const bool use =
        reach.kind == tree::Reach::full ||
        (reach.kind == tree::Reach::recurrent && info.end == depth) ||
        (reach.kind == tree::Reach::window && (in_window || info.begin < reach.sink_tokens));
    if (use) needed.push_back(i);
  }
  return needed;
}

}  // namespace stemma::tier
