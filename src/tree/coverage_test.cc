#include "tree/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace stemma::tree {
namespace {

GroupReach full(uint32_t block_tokens = 16) { return {Reach::full, block_tokens, 0, 0}; }
GroupReach window(uint32_t tokens, uint32_t block_tokens = 16, uint32_t sinks = 0) {
  return {Reach::window, block_tokens, tokens, sinks};
}
GroupReach recurrent() { return {Reach::recurrent, 16, 0, 0}; }

// A prompt's path written out in full: the blocks of each group, and the units that cannot be
// split. It counts the questions and remembers any that the contract rules out.
struct Path {
  std::vector<GroupReach> groups;
  std::vector<std::vector<uint32_t>> valid;          // [group][block]
  std::vector<std::set<uint32_t>> checkpoints;       // [group]
  std::vector<std::pair<uint32_t, uint32_t>> units;  // Disjoint [begin, end).
  uint64_t looks = 0;
  bool misused = false;

  explicit Path(std::vector<GroupReach> of)
      : groups(std::move(of)), valid(groups.size()), checkpoints(groups.size()) {}

  // Every group has computed [0, tokens), and published its partly filled tail.
  static Path cached(std::vector<GroupReach> of, uint32_t tokens) {
    Path path(std::move(of));
    for (uint32_t g = 0; g < path.groups.size(); ++g) {
      if (path.groups[g].kind == Reach::recurrent) {
        path.checkpoints[g].insert(tokens);
        continue;
      }
      const uint32_t size = path.groups[g].block_tokens;
      for (uint32_t at = 0; at < tokens; at += size) {
        path.valid[g].push_back(std::min(size, tokens - at));
      }
    }
    return path;
  }

  uint32_t valid_tokens(uint32_t group, uint32_t block) {
    ++looks;
    misused |= groups[group].kind == Reach::recurrent;
    return block < valid[group].size() ? valid[group][block] : 0;
  }
  uint32_t whole_blocks(uint32_t group, uint32_t limit_blocks) {
    misused |= groups[group].kind != Reach::full;
    uint32_t whole = 0;
    while (whole < limit_blocks && whole < valid[group].size() &&
           valid[group][whole] == groups[group].block_tokens) {
      ++whole;
    }
    return whole;
  }
  uint32_t checkpoint_at_most(uint32_t group, uint32_t depth) {
    misused |= groups[group].kind != Reach::recurrent;
    auto above = checkpoints[group].upper_bound(depth);
    return above == checkpoints[group].begin() ? 0 : *std::prev(above);
  }
  uint32_t unit_floor(uint32_t depth) const {
    for (auto [begin, end] : units) {
      if (begin < depth && depth < end) return begin;
    }
    return depth;
  }
};

// The same path, as if every recurrent group had a checkpoint wherever one is asked for.
struct CheckpointsEverywhere {
  Path& path;
  uint32_t valid_tokens(uint32_t group, uint32_t block) { return path.valid_tokens(group, block); }
  uint32_t whole_blocks(uint32_t group, uint32_t limit) { return path.whole_blocks(group, limit); }
  uint32_t checkpoint_at_most(uint32_t, uint32_t depth) { return depth; }
  uint32_t unit_floor(uint32_t depth) const { return path.unit_floor(depth); }
};

enum class Copy : bool { no, yes };

Serve serve(Path& path, uint32_t limit, Copy copy = Copy::yes) {
  return largest_servable(path.groups, limit, copy == Copy::yes, path);
}
uint32_t served(Path path, uint32_t limit, Copy copy = Copy::yes) {
  return serve(path, limit, copy).n;
}

template <class Present>
uint32_t tried_one_by_one(Path& path, uint32_t limit, Copy copy, Present&& present) {
  uint32_t n = limit;
  while (!servable(path.groups, n, copy == Copy::yes, present)) --n;
  return n;
}

std::string described(const Path& path, uint32_t limit, Copy copy) {
  std::ostringstream out;
  out << "limit " << limit << (copy == Copy::yes ? ", copies" : ", no copies");
  for (uint32_t g = 0; g < path.groups.size(); ++g) {
    const GroupReach& group = path.groups[g];
    if (group.kind == Reach::recurrent) {
      out << "\n  recurrent, checkpoints";
      for (uint32_t depth : path.checkpoints[g]) out << ' ' << depth;
      continue;
    }
    out << (group.kind == Reach::full ? "\n  full" : "\n  window ");
    if (group.kind == Reach::window) out << group.window_tokens << " sinks " << group.sink_tokens;
    out << " in blocks of " << group.block_tokens << ':';
    for (uint32_t tokens : path.valid[g]) out << ' ' << tokens;
  }
  for (auto [begin, end] : path.units) out << "\n  unit " << begin << ".." << end;
  return out.str();
}

// Compares the walk with the definition, at one limit.
void expect_as_defined(Path& path, uint32_t limit, Copy copy) {
  const Serve answer = serve(path, limit, copy);
  const uint32_t n = tried_one_by_one(path, limit, copy, path);
  const uint32_t without = tried_one_by_one(path, limit, copy, CheckpointsEverywhere{path});

  // A group is named exactly if groups, and not the limit, the grid or a unit, made n this small;
  // and the named group does object to some larger depth.
  uint32_t grid = 1;
  for (const GroupReach& group : path.groups) {
    const bool paged = group.kind != Reach::recurrent;
    if (paged && copy == Copy::no) grid = std::max(grid, group.block_tokens);
  }
  uint32_t ungrouped = limit;
  while (ungrouped % grid != 0 || path.unit_floor(ungrouped) != ungrouped) --ungrouped;
  bool blamed_rightly = answer.limited_by_group == Serve::kNone;
  if (answer.limited_by_group < path.groups.size()) {
    Path alone(path);
    for (uint32_t g = 0; g < path.groups.size(); ++g) {
      // Nothing but this group may object: a window of one token over blocks of one, all there.
      if (g == answer.limited_by_group) continue;
      alone.groups[g] = window(1, 1);
      alone.valid[g].assign(limit, 1);
    }
    for (uint32_t m = n + 1; m <= limit && !blamed_rightly; ++m) {
      blamed_rightly = !servable(alone.groups, m, true, alone);
    }
  }

  if (answer.n != n || answer.n_without_recurrent != without || path.misused || !blamed_rightly ||
      (answer.limited_by_group == Serve::kNone) != (n == ungrouped)) {
    ADD_FAILURE() << described(path, limit, copy) << "\n  served " << answer.n << ", by definition "
                  << n << "; without recurrent " << answer.n_without_recurrent << ", by definition "
                  << without << "; limited by group " << static_cast<int>(answer.limited_by_group)
                  << (path.misused ? "; asked what the contract rules out" : "");
  }
}

void expect_as_defined_everywhere(Path& path, uint32_t limit) {
  for (uint32_t n = 0; n <= limit; ++n) {
    expect_as_defined(path, n, Copy::yes);
    expect_as_defined(path, n, Copy::no);
    if (testing::Test::HasFailure()) return;
  }
}

// Counts through every vector of `digits` numbers in [0, base); false after the last one.
bool next(std::vector<uint32_t>& digits, uint32_t base) {
  for (uint32_t& digit : digits) {
    if (++digit < base) return true;
    digit = 0;
  }
  return false;
}

// ---- Full and window groups over blocks --------------------------------------------------------

// 55 tokens were computed by a full group and two window groups; 48 of them are whole blocks.
Path three_groups() {
  Path path = Path::cached({full(), window(32), window(32)}, 55);
  for (auto& blocks : path.valid) blocks.pop_back();  // The tail was never published.
  return path;
}

TEST(Coverage, NothingIsAlwaysServable) {
  Path nothing({full(), window(32), recurrent()});
  EXPECT_EQ(served(nothing, 100), 0U);
  EXPECT_EQ(served(nothing, 0), 0U);
  EXPECT_TRUE(servable(nothing.groups, 0, false, nothing));
}

TEST(Coverage, WithoutGroupsOnlyTheLimitAndUnitsCount) {
  Path path({});
  EXPECT_EQ(served(path, 100, Copy::no), 100U);
  path.units = {{90, 200}};
  EXPECT_EQ(served(path, 100, Copy::no), 90U);
}

TEST(Coverage, WholeBlocksOfEveryGroupAreServed) {
  EXPECT_EQ(served(three_groups(), 55), 48U);
  EXPECT_EQ(served(three_groups(), 55, Copy::no), 48U);
}

TEST(Coverage, PublishedTailsAreServedToTheLastTokenByCopy) {
  Path path = Path::cached({full(), window(32), window(32)}, 55);
  EXPECT_EQ(served(path, 55), 55U);
  EXPECT_EQ(served(path, 55, Copy::no), 48U);
}

TEST(Coverage, WindowGroupsNeedOnlyTheirLastBlocks) {
  Path path = three_groups();
  path.valid[1][0] = path.valid[2][0] = 0;
  EXPECT_EQ(served(path, 48), 48U);
  path.looks = 0;
  serve(path, 48);
  EXPECT_EQ(path.looks, 4U) << "two blocks of each window group, and nothing else, are looked at";
}

TEST(Coverage, FirstWindowBlockMissingStillServesTheEnd) {
  Path path = three_groups();
  path.valid[1][0] = 0;
  EXPECT_EQ(served(path, 55), 48U);
}

TEST(Coverage, FirstFullBlockMissingServesNothing) {
  Path path = three_groups();
  path.valid[0][0] = 0;
  EXPECT_EQ(served(path, 55), 0U);
  EXPECT_EQ(serve(path, 55).limited_by_group, 0U);
}

TEST(Coverage, LastBlockOfAnyGroupMissingServesTheBlocksBefore) {
  for (uint32_t g = 0; g < 3; ++g) {
    Path path = three_groups();
    path.valid[g][2] = 0;
    EXPECT_EQ(served(path, 55), 32U) << "group " << g;
    EXPECT_EQ(serve(path, 48).limited_by_group, g);
  }
}

TEST(Coverage, HoleInsideTheWindowServesUpToTheHole) {
  Path path = three_groups();
  path.valid[1][1] = 0;
  EXPECT_EQ(served(path, 48), 16U);
  path.valid[1][1] = 7;  // A copy source for the depths it still holds.
  EXPECT_EQ(served(path, 48), 23U);
  EXPECT_EQ(served(path, 48, Copy::no), 16U);
}

TEST(Coverage, WindowThatIsNoMultipleOfTheBlockNeedsTheBlockItStartsIn) {
  for (uint32_t tokens : {17U, 31U, 32U}) {
    Path path = Path::cached({window(tokens)}, 64);
    path.valid[0][1] = 0;
    EXPECT_EQ(served(path, 64), 64U) << tokens;  // Blocks 2 and 3.
  }
  Path path = Path::cached({window(33)}, 64);
  path.valid[0][1] = 0;
  EXPECT_EQ(served(path, 64), 16U);  // Position 31 is missing.
}

TEST(Coverage, WindowInsideAPartialTailReachesBackFromItsLastToken) {
  Path path = Path::cached({window(20)}, 56);  // Needs [36, 56).
  path.valid[0][1] = 0;
  EXPECT_EQ(served(path, 56), 56U);
  EXPECT_EQ(served(path, 52), 52U);  // Needs [32, 52).
  EXPECT_EQ(served(path, 51), 16U);  // Position 31 is missing.
}

TEST(Coverage, SmallerDepthMayNeedABlockThatALargerOneDoesNot) {
  Path path = Path::cached({full(), window(32)}, 64);
  path.valid[1][0] = 0;
  EXPECT_EQ(served(path, 64), 64U);
  EXPECT_EQ(served(path, 48), 48U);
  EXPECT_EQ(served(path, 47), 0U);  // Needs position 15.
}

TEST(Coverage, SinksMustBeThereAtEveryDepth) {
  Path path = Path::cached({window(16, 16, 4)}, 96);
  path.valid[0][1] = path.valid[0][2] = 0;
  EXPECT_EQ(served(path, 96), 96U);
  path.valid[0][0] = 0;
  EXPECT_EQ(served(path, 96), 0U);
}

TEST(Coverage, SinksThatAreNoMultipleOfTheBlockNeedTheBlockTheyEndIn) {
  Path path = Path::cached({window(16, 16, 20)}, 96);
  path.valid[0][2] = 0;
  EXPECT_EQ(served(path, 96), 96U);
  path.valid[0][1] = 9;
  EXPECT_EQ(served(path, 96), 25U);
  EXPECT_EQ(served(path, 96, Copy::no), 16U);
}

TEST(Coverage, SinkBlockThatIsOnlyACopySourceServesNothingBeyondIt) {
  Path path = Path::cached({window(16, 16, 4)}, 96);
  path.valid[0][0] = 12;  // Holds all four sinks, but cannot be shared in place.
  EXPECT_EQ(served(path, 96), 12U);
}

TEST(Coverage, RolledOverWindowDoesNotHideAShorterPrefix) {
  Path path = Path::cached({window(4, 1)}, 12);
  path.valid[0][5] = 0;
  EXPECT_EQ(served(path, 7), 5U);
  EXPECT_EQ(served(path, 9), 5U);
  EXPECT_EQ(served(path, 10), 10U);  // Needs [6, 10): the hole is out of reach.
}

TEST(Coverage, GroupsOfDifferentBlockSizesAgreeOnOneDepth) {
  Path path = Path::cached({full(32), window(32, 16)}, 112);
  EXPECT_EQ(served(path, 112), 112U);
  EXPECT_EQ(served(path, 112, Copy::no), 96U);
  EXPECT_EQ(served(path, 96), 96U);
  path.valid[0].pop_back();  // The full group's half block was not published.
  EXPECT_EQ(served(path, 112), 96U);
}

TEST(Coverage, WithoutCopiesTheLargestBlockSetsTheGrid) {
  Path path = Path::cached({full(16), window(8, 4), window(64, 64)}, 200);
  EXPECT_EQ(served(path, 200, Copy::no), 192U);
  EXPECT_EQ(served(path, 191, Copy::no), 128U);
  path.valid[1][31] = 0;  // Breaks 128 and would leave 124; the grid then asks for 64.
  EXPECT_EQ(served(path, 191, Copy::no), 64U);
  EXPECT_EQ(served(path, 128), 124U);
}

TEST(Coverage, HitLengthDoesNotDependOnBlockMultiples) {
  for (uint32_t limit : {5119U, 5120U, 5121U}) {
    EXPECT_EQ(served(Path::cached({full(), window(1024), window(100, 64)}, 6000), limit), limit);
  }
}

TEST(Coverage, OneGroupsReductionIsCheckedAgainByTheOthers) {
  // Each window is broken only at the depth the other one retreats to.
  Path path = Path::cached({window(16), window(16)}, 80);
  path.valid[0][4] = path.valid[0][2] = path.valid[0][0] = 0;
  path.valid[1][3] = path.valid[1][1] = 0;
  EXPECT_EQ(served(path, 80), 0U);
  path.valid[0][0] = 3;
  EXPECT_EQ(served(path, 80), 3U);
}

// ---- Recurrent groups --------------------------------------------------------------------------

TEST(Coverage, RecurrentStateServesItsExactDepthOnly) {
  Path path({recurrent()});
  path.checkpoints[0] = {48};
  EXPECT_EQ(served(path, 48 + 7), 48U);
  EXPECT_EQ(served(path, 48), 48U);
  const Serve shorter = serve(path, 32);
  EXPECT_EQ(shorter.n, 0U);
  EXPECT_EQ(shorter.n_without_recurrent, 32U);
  EXPECT_EQ(shorter.limited_by_group, 0U);
  path.checkpoints[0] = {32, 48};
  EXPECT_EQ(served(path, 32), 32U);
}

TEST(Coverage, AnswerSaysWhereACheckpointWouldHaveHelped) {
  Path path = Path::cached({full(), window(32), recurrent()}, 55);
  path.checkpoints[2] = {16};
  path.valid[0][3] = 2;
  const Serve answer = serve(path, 55);
  EXPECT_EQ(answer.n, 16U);
  EXPECT_EQ(answer.limited_by_group, 2U);
  EXPECT_EQ(answer.n_without_recurrent, 50U);
  EXPECT_EQ(serve(path, 55, Copy::no).n_without_recurrent, 48U);
}

TEST(Coverage, RecurrentGroupsMeetAtACheckpointTheyShare) {
  Path path({recurrent(), recurrent(), recurrent()});
  path.checkpoints = {{5, 9, 20, 31}, {4, 9, 21, 30}, {9, 20, 30, 31}};
  EXPECT_EQ(served(path, 40), 9U);
  EXPECT_EQ(served(path, 8), 0U);
  EXPECT_EQ(serve(path, 40).n_without_recurrent, 40U);
}

TEST(Coverage, CheckpointOffTheGridNeedsACopy) {
  Path path = Path::cached({full(), recurrent()}, 64);
  path.checkpoints[1] = {16, 39};
  EXPECT_EQ(served(path, 64), 39U);
  EXPECT_EQ(served(path, 64, Copy::no), 16U);
}

TEST(Coverage, CheckpointWhoseWindowIsGoneGivesWayToAnOlderOne) {
  Path path = Path::cached({window(32), recurrent()}, 96);
  path.checkpoints[1] = {16, 64};
  path.valid[0][2] = 0;
  EXPECT_EQ(served(path, 96), 16U);
  EXPECT_EQ(serve(path, 96).n_without_recurrent, 96U);
}

TEST(Coverage, AnyCombinationOfGroupsServesAPrefixTheyAllHold) {
  const std::vector<GroupReach> kinds = {full(), window(32), window(64), recurrent()};
  for (uint32_t count = 2; count <= 4; ++count) {
    std::vector<uint32_t> chosen(count);
    do {
      std::vector<GroupReach> groups;
      for (uint32_t kind : chosen) groups.push_back(kinds[kind]);
      for (uint32_t limit : {48U, 49U, 55U, 200U}) {
        Path path = Path::cached(groups, 48);
        const Serve answer = serve(path, limit);
        EXPECT_EQ(answer.n, 48U) << described(path, limit, Copy::yes);
        EXPECT_EQ(served(path, limit, Copy::no), 48U) << described(path, limit, Copy::no);
      }
    } while (next(chosen, 4));
  }
}

// ---- Units -------------------------------------------------------------------------------------

TEST(Coverage, NoHitEndsInsideAUnit) {
  Path path = Path::cached({full(), window(32)}, 64);
  path.units = {{6, 16}};
  EXPECT_EQ(served(path, 8), 6U);
  EXPECT_EQ(served(path, 6), 6U);
  EXPECT_EQ(served(path, 15), 6U);
  EXPECT_EQ(served(path, 16), 16U);
}

TEST(Coverage, UnitOverABlockBorderServesTheGridBeforeItWithoutCopies) {
  Path path = Path::cached({full()}, 64);
  path.units = {{30, 50}};
  EXPECT_EQ(served(path, 48), 30U);
  EXPECT_EQ(served(path, 48, Copy::no), 16U);
  EXPECT_EQ(serve(path, 48).limited_by_group, Serve::kNone);
}

TEST(Coverage, LeavingAUnitIsCheckedAgainstTheWindow) {
  Path path = Path::cached({window(16)}, 64);
  path.units = {{40, 60}};
  path.valid[0][1] = 0;
  EXPECT_EQ(served(path, 63), 63U);
  EXPECT_EQ(served(path, 59), 16U);  // 40 would need position 24.
}

TEST(Coverage, CheckpointInsideAUnitIsNotUsed) {
  Path path({recurrent()});
  path.checkpoints[0] = {5, 10};
  path.units = {{8, 16}};
  EXPECT_EQ(served(path, 20), 5U);
  EXPECT_EQ(serve(path, 12).n_without_recurrent, 8U);
}

// ---- The walk is the definition ----------------------------------------------------------------

TEST(Coverage, OneWindowGroupIsServedAsDefinedInEveryCase) {
  for (auto [size, blocks] : {std::pair{1U, 6U}, {2U, 4U}, {4U, 3U}}) {
    std::vector<uint32_t> valid(blocks);
    do {
      for (uint32_t tokens = 1; tokens <= size * blocks; ++tokens) {
        for (uint32_t sinks = 0; sinks <= size + 1; ++sinks) {
          Path path({window(tokens, size, sinks)});
          path.valid[0] = valid;
          expect_as_defined_everywhere(path, size * blocks + 1);
          if (HasFailure()) return;
        }
      }
    } while (next(valid, size + 1));
  }
}

TEST(Coverage, TwoWindowGroupsAreServedAsDefinedInEveryCase) {
  std::vector<uint32_t> ones(6);
  do {
    std::vector<uint32_t> twos(3);
    do {
      for (uint32_t tokens = 0; tokens < 16; ++tokens) {
        Path path({window(1 + tokens % 4, 1), window(1 + tokens / 4, 2)});
        path.valid = {ones, twos};
        expect_as_defined_everywhere(path, 7);
        if (HasFailure()) return;
      }
    } while (next(twos, 3));
  } while (next(ones, 2));
}

TEST(Coverage, FullWindowAndRecurrentTogetherAreServedAsDefinedInEveryCase) {
  std::vector<uint32_t> pages(2);
  do {
    std::vector<uint32_t> positions(4);
    do {
      std::vector<uint32_t> marks(4);
      do {
        for (uint32_t begin = 0; begin < 4; ++begin) {
          for (uint32_t end = begin + 1; end <= 4; ++end) {
            Path path({full(2), window(2, 1), recurrent()});
            path.valid = {pages, positions, {}};
            path.units = {{begin, end}};
            for (uint32_t i = 0; i < 4; ++i) {
              if (marks[i] != 0) path.checkpoints[2].insert(i + 1);
            }
            expect_as_defined_everywhere(path, 5);
            if (HasFailure()) return;
          }
        }
      } while (next(marks, 2));
    } while (next(positions, 2));
  } while (next(pages, 3));
}

Path random_path(std::mt19937_64& random) {
  auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  const uint32_t depth = 1 + below(below(4) == 0 ? 300 : 60);
  const uint32_t hole_percent = std::vector<uint32_t>{0, 3, 10, 30, 60}[below(5)];
  const uint32_t short_percent = std::vector<uint32_t>{0, 5, 30}[below(3)];
  std::vector<GroupReach> groups(below(4) == 0 ? 1 + below(kMaxGroups) : 1 + below(4));
  const uint32_t recurrent_in_10 = below(4);
  for (GroupReach& group : groups) {
    group.block_tokens = 1U << below(6);
    if (below(10) < recurrent_in_10) {
      group.kind = Reach::recurrent;
    } else if (below(3) != 0) {
      group.kind = Reach::window;
      group.window_tokens = 1 + below(below(2) == 0 ? 12 : depth + 40);
      group.sink_tokens = below(3) == 0 ? below(20) : 0;
    }
  }
  Path path(groups);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == Reach::recurrent) {
      const uint32_t mark_percent = 5 + below(70);
      for (uint32_t n = 1; n <= depth; ++n) {
        if (below(100) < mark_percent) path.checkpoints[g].insert(n);
      }
      continue;
    }
    const uint32_t size = groups[g].block_tokens;
    // Full groups mostly lose their end, so that windows have something left to decide.
    const uint32_t holes = groups[g].kind == Reach::full ? hole_percent / 10 : hole_percent;
    for (uint32_t at = 0; at < depth; at += size) {
      uint32_t valid = std::min(size, depth - at);
      if (below(100) < short_percent) valid = below(valid + 1);
      if (below(100) < holes) valid = 0;
      path.valid[g].push_back(valid);
    }
  }
  for (uint32_t at = below(20); below(3) == 0 && at < depth;) {
    const uint32_t end = at + 1 + below(24);
    path.units.emplace_back(at, end);
    at = end + below(12);
  }
  return path;
}

TEST(Coverage, RandomPathsAreServedAsDefined) {
  constexpr uint64_t kSeed = 20'240'611;
  constexpr uint32_t kPaths = 40'000;
  std::cout << "seeds " << kSeed << " to " << kSeed + kPaths - 1 << '\n';
  uint32_t positive = 0;
  uint32_t reduced = 0;
  for (uint64_t seed = kSeed; seed < kSeed + kPaths; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Path path = random_path(random);
    for (int i = 0; i < 4; ++i) {
      const auto limit = static_cast<uint32_t>(random() % 330);
      const Copy copy = random() % 3 != 0 ? Copy::yes : Copy::no;
      expect_as_defined(path, limit, copy);
      if (HasFailure()) return;
      const Serve answer = serve(path, limit, copy);
      positive += answer.n > 0;
      reduced += answer.limited_by_group != Serve::kNone;
    }
  }
  EXPECT_GT(positive, kPaths) << "the paths drawn are too broken to show anything";
  EXPECT_GT(reduced, kPaths) << "the paths drawn are too whole to show anything";
}

// ---- Cost --------------------------------------------------------------------------------------

TEST(Coverage, EachBlockIsLookedAtOnceHoweverManyHolesThereAre) {
  constexpr uint32_t kBlocks = 4096;
  for (uint32_t every : {1U, 2U, 3U, 63U, 64U, 65U}) {
    Path path = Path::cached({window(64 * 16), window(64 * 16)}, kBlocks * 16);
    for (uint32_t block = 0; block < kBlocks; block += every) {
      path.valid[block / every % 2][block] = 0;
    }
    serve(path, kBlocks * 16);
    EXPECT_LE(path.looks, 2 * kBlocks) << "a hole every " << every;
  }
}

TEST(Coverage, CheckpointsThatCannotBeUsedDoNotCauseRescans) {
  constexpr uint32_t kBlocks = 1024;
  Path path = Path::cached({window(512 * 16), recurrent(), recurrent()}, kBlocks * 16);
  path.checkpoints[1] = path.checkpoints[2] = {16};
  for (uint32_t n = 2; n < kBlocks; ++n) path.checkpoints[1 + n % 2].insert(n * 16);
  const Serve answer = serve(path, kBlocks * 16);
  EXPECT_EQ(answer.n, 16U);
  EXPECT_EQ(answer.n_without_recurrent, kBlocks * 16);
  EXPECT_LE(path.looks, kBlocks);
}

// A path of the greatest possible depth, with everything there, answered without a table.
struct Endless {
  uint32_t missing_block = 0xFFFF'FFFF;
  uint64_t looks = 0;
  uint32_t valid_tokens(uint32_t, uint32_t block) {
    ++looks;
    return block == missing_block ? 0 : 16;
  }
  uint32_t whole_blocks(uint32_t, uint32_t limit_blocks) { return limit_blocks; }
  uint32_t checkpoint_at_most(uint32_t, uint32_t depth) { return depth; }
  uint32_t unit_floor(uint32_t depth) { return depth; }
};

TEST(Coverage, LongestPathsCostOnlyTheirWindow) {
  constexpr uint32_t kLimit = 0x7FFF'FFFF;
  const std::vector<GroupReach> groups = {full(), window(4096, 16, 64), recurrent()};
  Endless path;
  EXPECT_EQ(largest_servable(groups, kLimit, true, path).n, kLimit);
  EXPECT_EQ(largest_servable(groups, kLimit, false, path).n, kLimit - 15);
  EXPECT_LT(path.looks, 2 * (4096 / 16 + 10));
  path = {.missing_block = kLimit / 16 - 3};
  EXPECT_EQ(largest_servable(groups, kLimit, true, path).n, (kLimit / 16 - 3) * 16);
  EXPECT_LT(path.looks, 4096 / 16 + 20);
}

}  // namespace
}  // namespace stemma::tree
