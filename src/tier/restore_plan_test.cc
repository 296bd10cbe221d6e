#include "tier/restore_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace stemma::tier {
namespace {

constexpr uint32_t kLength = 64;

GroupOptions group(Attention attention, uint32_t block_tokens, uint32_t window_tokens = 0,
                   uint32_t sink_tokens = 0) {
  return {.attention = attention,
          .block_tokens = block_tokens,
          .capacity_blocks = 64,
          .window_tokens = window_tokens,
          .sink_tokens = sink_tokens,
          .block_bytes = 64};
}

struct Mix {
  std::vector<GroupOptions> groups;
  uint32_t unit_tokens;
};

const std::vector<Mix>& mixes() {
  constexpr Attention full = Attention::full, window = Attention::window,
                      recurrent = Attention::recurrent;
  static const std::vector<Mix> all = {
      {{group(full, 4)}, 4},
      {{group(full, 2), group(full, 8)}, 8},
      {{group(window, 4, 10)}, 4},
      {{group(window, 4, 7, 6), group(full, 2)}, 4},
      {{group(recurrent, 0)}, 16},
      {{group(full, 4), group(recurrent, 0)}, 4},
      {{group(window, 2, 5), group(full, 8), group(recurrent, 0), group(window, 4, 20, 3)}, 8},
  };
  return all;
}

// What exists of one prompt, by group and block (or unit), in the cache or in a tier.
using There = std::vector<std::vector<bool>>;

uint32_t size_of(const Mix& mix, GroupIndex g) {
  const bool recurrent = mix.groups[g].attention == Attention::recurrent;
  return recurrent ? mix.unit_tokens : mix.groups[g].block_tokens;
}

// Whether depth n needs block b: the rules, written out.
bool must(const Mix& mix, GroupIndex g, uint32_t b, uint32_t n) {
  const GroupOptions& group = mix.groups[g];
  const uint32_t begin = b * size_of(mix, g), end = begin + size_of(mix, g);
  if (end > n) return false;
  if (group.attention == Attention::full) return true;
  if (group.attention == Attention::recurrent) return end == n;
  for (uint32_t at = begin; at < end; ++at) {
    if (at + group.window_tokens >= n || at < group.sink_tokens) return true;
  }
  return false;
}

uint32_t deepest(const Mix& mix, const There& there, uint32_t last) {
  for (uint32_t n = last; n > 0; n -= mix.unit_tokens) {
    bool served = true;
    for (GroupIndex g = 0; g < mix.groups.size(); ++g) {
      for (uint32_t b = 0; b < there[g].size(); ++b)
        served = served && (!must(mix, g, b, n) || there[g][b]);
    }
    if (served) return n;
  }
  return 0;
}

}  // namespace

// Random holes in the cache and in the tiers: the answer must match the rules tried depth by depth,
// and every entry named as needed must make a difference.
TEST(RestorePlan, IsAsDeepAsEveryGroupAllows) {
  const Scope scope = Scope::make({.model = "a model"}).value();
  std::vector<Token> words(kLength);
  for (uint32_t i = 0; i < kLength; ++i) words[i] = i;
  std::mt19937 random(7);  // NOLINT: the same run every time.
  uint64_t found = 0, beyond = 0;
  for (uint32_t round = 0; round < 4000; ++round) {
    const Mix& mix = mixes()[round % mixes().size()];
    SCOPED_TRACE("round " + std::to_string(round));
    const BlockGrid grid(mix.groups, 7);
    ASSERT_EQ(grid.unit_tokens, mix.unit_tokens);
    const uint32_t last = (1 + static_cast<uint32_t>(random()) % (kLength / 16)) * 16;
    // The cache has a prefix, with everything that its depth needs of each group.
    const uint32_t units = last / mix.unit_tokens;
    Report cached;
    cached.reused_tokens = random() % 3 == 0 ? 0 : random() % units * mix.unit_tokens;
    cached.matched_tokens =
        cached.reused_tokens + static_cast<uint32_t>(random()) % (last - cached.reused_tokens + 1);
    There there(mix.groups.size());
    for (GroupIndex g = 0; g < mix.groups.size(); ++g) {
      for (uint32_t b = 0; b < last / size_of(mix, g); ++b) {
        const bool full = mix.groups[g].attention == Attention::full;
        const uint32_t end = (b + 1) * size_of(mix, g);
        there[g].push_back(full ? end <= cached.matched_tokens
                                : must(mix, g, b, cached.reused_tokens));
      }
    }
    PromptKeys keys = PromptKeys::of(scope, {.tokens = words}).value();
    const RestorePlan plan(grid, keys, cached, last);
    std::vector<LevelMask> levels(plan.wanted().size());
    const uint32_t chance = random() % 2 == 0 ? 95 : 70;
    for (uint32_t i = 0; i < levels.size(); ++i) {
      levels[i] = random() % 100 < chance ? 1U : 0U;
      const RestorePlan::Place place = plan.place(i);
      EXPECT_FALSE(there[place.group][place.block]) << "it is cached";
      there[place.group][place.block] = levels[i] != 0;
    }
    const uint32_t depth = plan.deepest(levels);
    const uint32_t wanted = deepest(mix, there, last);
    // Depths below the reused prefix do not matter.
    ASSERT_EQ(std::max(depth, cached.reused_tokens), std::max(wanted, cached.reused_tokens));
    if (depth <= cached.reused_tokens) continue;
    ++found;
    beyond += cached.reused_tokens != 0 ? 1U : 0U;
    std::vector<uint32_t> needed;
    for (uint32_t i = 0; i < levels.size(); ++i) {
      const RestorePlan::Place place = plan.place(i);
      if (must(mix, place.group, place.block, depth)) needed.push_back(i);
    }
    ASSERT_EQ(plan.needed(depth), needed);
    for (const uint32_t i : needed) ASSERT_NE(levels[i], 0U);
  }
  EXPECT_GT(found, 1000U);
  EXPECT_GT(beyond, 300U);
}

TEST(RestorePlan, EntriesSayWhatTheyAre) {
  const Scope scope = Scope::make({.model = "a model"}).value();
  std::vector<Token> words(16, 3);
  const std::vector<GroupOptions> groups = {
      group(Attention::window, 4, 5), group(Attention::full, 8), group(Attention::recurrent, 0)};
  const BlockGrid grid(groups, 77);
  PromptKeys keys = PromptKeys::of(scope, {.tokens = words}).value();
  const RestorePlan plan(grid, keys, Report{}, 16);
  // Unit by unit, the first group last.
  std::string order;
  for (uint32_t i = 0; i < plan.wanted().size(); ++i) {
    const Wanted& one = plan.wanted()[i];
    order += std::to_string(plan.place(i).group) + ":" + std::to_string(one.info.begin) + "-" +
             std::to_string(one.info.end) + " ";
    EXPECT_EQ(one.info.layout, 77U);
    EXPECT_EQ(one.key.group, plan.place(i).group);
    EXPECT_EQ(one.key.kind == EntryKind::checkpoint, one.key.group == 2);
    const ContentKey& chain = keys.chain(grid.block_tokens(one.key.group), 1)[plan.place(i).block];
    EXPECT_EQ(one.key, entry_key(chain, one.key.kind, one.key.group, 77));
  }
  EXPECT_EQ(order, "2:0-8 1:0-8 0:0-4 0:4-8 2:0-16 1:8-16 0:8-12 0:12-16 ");
  // A state and the block that ends at the same depth have the same chain; their kinds differ.
  EXPECT_EQ(plan.wanted()[0].key.chain, plan.wanted()[1].key.chain);
}

TEST(RestorePlan, GroupsThatNoCacheHasAreRefused) {
  const auto code_of = [](const std::vector<GroupOptions>& groups) {
    const Result<void> checked = BlockGrid::check(groups);
    return checked ? Errc{} : checked.error().code();
  };
  EXPECT_EQ(code_of({}), Errc::invalid_argument);
  EXPECT_EQ(code_of(std::vector<GroupOptions>(9, group(Attention::full, 4))),
            Errc::invalid_argument);
  EXPECT_EQ(code_of({group(Attention::full, 3)}), Errc::invalid_argument);
  EXPECT_EQ(code_of({group(Attention::full, 2048)}), Errc::invalid_argument);
  EXPECT_EQ(code_of({group(Attention::window, 4)}), Errc::invalid_argument);
  GroupOptions empty = group(Attention::recurrent, 0);
  empty.block_bytes = 0;
  EXPECT_EQ(code_of({empty}), Errc::invalid_argument);
  EXPECT_EQ(code_of(mixes().back().groups), Errc{});
}

}  // namespace stemma::tier
