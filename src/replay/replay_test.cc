#include "replay/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "retain/policies.h"
#include "support/rooms/replays.h"

namespace stemma::replay {
namespace {

using test::replayed;
using test::trace_in;

using Path = std::vector<uint32_t>;

// Requests for these paths, a second apart; the numbers are chained ids.
Trace trace_of(const std::vector<Path>& paths) {
  std::string text;
  uint64_t now = 0;
  for (const Path& path : paths) {
    std::string ids;
    for (const uint32_t id : path) ids += (ids.empty() ? "" : ",") + std::to_string(id);
    text += "{\"timestamp\":" + std::to_string(now += 1000) +
            ",\"input_length\":" + std::to_string(path.size() * 512) + ",\"hash_ids\":[" + ids +
            "]}\n";
  }
  return trace_in(text);
}

// Random conversations that share beginnings: words of a path are its nodes in one random tree.
std::vector<Path> random_paths(uint32_t seed, int requests) {
  std::mt19937 random(seed);
  std::vector<Path> paths{{}};
  std::vector<Path> out;
  uint32_t next = 0;
  for (int i = 0; i < requests; ++i) {
    Path path = paths[random() % paths.size()];
    path.resize(path.size() - random() % (path.size() / 2 + 1));
    for (uint32_t more = random() % 5; more > 0; --more) path.push_back(next++);
    if (paths.size() < 25) {
      paths.push_back(path);
    } else {
      paths[random() % paths.size()] = path;
    }
    out.push_back(path);
  }
  return out;
}

// The naive simulator: the rule of the traces' README, searched step by step.
std::vector<uint32_t> plain_lru(const std::vector<Path>& paths, size_t capacity) {
  std::map<uint32_t, uint64_t> used;     // Resident blocks, when last used.
  std::map<uint32_t, uint32_t> parents;  // Of every block seen.
  std::vector<uint32_t> hits;
  for (uint64_t now = 1; const Path& whole : paths) {
    const Path path(whole.begin(), whole.begin() + std::min(whole.size(), capacity));
    for (size_t i = 1; i < path.size(); ++i) parents[path[i]] = path[i - 1];
    uint32_t found = 0;
    while (found < path.size() && used.contains(path[found])) ++found;
    hits.push_back(found);
    for (size_t i = 0; i < path.size(); ++i) {
      // Those before i are in use; cached ones behind i are not in use yet.
      if (i >= found && used.size() == capacity) {
        uint32_t victim = 0;
        uint64_t oldest = ~uint64_t{0};
        for (const auto& [block, when] : used) {
          bool leaf = true;
          for (const auto& [child, parent] : parents) {
            leaf = leaf && !(parent == block && used.contains(child));
          }
          const bool own = std::find(path.begin(), path.begin() + i, block) != path.begin() + i;
          if (leaf && !own && when < oldest) {
            victim = block;
            oldest = when;
          }
        }
        used.erase(victim);
      }
      used[path[i]] = now;
    }
    ++now;
  }
  return hits;
}

TEST(Replay, LruIsTheObviousLru) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const std::vector<Path> paths = random_paths(seed, 120);
    const Trace trace = trace_of(paths);
    for (const uint64_t capacity : {1, 3, 7, 20, 60}) {
      EXPECT_EQ(replayed(trace, "lru", capacity).request_hits, plain_lru(paths, capacity))
          << "seed " << seed << ", capacity " << capacity;
    }
  }
}

// Belady's rule over the flat sequence, by looking ahead every time.
uint64_t plain_min(const std::vector<Path>& paths, size_t capacity) {
  std::vector<uint32_t> flat;
  for (const Path& path : paths) flat.insert(flat.end(), path.begin(), path.end());
  std::vector<uint32_t> kept;
  uint64_t hits = 0;
  for (size_t at = 0; at < flat.size(); ++at) {
    const auto next_use = [&](uint32_t block) {
      return std::find(flat.begin() + static_cast<ptrdiff_t>(at) + 1, flat.end(), block);
    };
    if (std::find(kept.begin(), kept.end(), flat[at]) != kept.end()) {
      ++hits;
      continue;
    }
    kept.push_back(flat[at]);
    if (kept.size() <= capacity) continue;
    kept.erase(std::max_element(kept.begin(), kept.end(),
                                [&](uint32_t a, uint32_t b) { return next_use(a) < next_use(b); }));
  }
  return hits;
}

TEST(Replay, MinIsBeladysAndNobodyBeatsIt) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const std::vector<Path> paths = random_paths(seed, 120);
    const Trace trace = trace_of(paths);
    uint64_t last = 0;
    for (const uint64_t capacity : {1, 3, 7, 20, 60, 1000}) {
      const ReplayResult min = replayed(trace, "min", capacity);
      EXPECT_EQ(min.block_hits, plain_min(paths, capacity)) << capacity;
      EXPECT_GE(min.block_hits, replayed(trace, "lru", capacity).block_hits);
      EXPECT_GE(min.block_hits, last) << "more room is never worse";
      last = min.block_hits;
    }
    const ReplayResult all = replayed(trace, "infinite", 1);
    EXPECT_EQ(last, all.block_hits);
    EXPECT_EQ(all.block_hits, trace.block_refs - trace.unique_blocks);
    EXPECT_EQ(replayed(trace, "lru", trace.unique_blocks).block_hits, all.block_hits);
  }
}

TEST(Replay, APathThatIsThereInFullIsFoundInFullAndTakesNothing) {
  const Trace trace = trace_of({{1, 2, 3}, {1, 2, 3}, {4}, {1, 2, 3}});
  const ReplayResult result = replayed(trace, "lru", 4);
  EXPECT_EQ(result.request_hits, (std::vector<uint32_t>{0, 3, 0, 3}));
  EXPECT_EQ(result.evictions, 0U);
}

TEST(Replay, WhatIsLongerThanTheCacheIsCutToIt) {
  const Trace trace = trace_of({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 9}});
  const ReplayResult result = replayed(trace, "lru", 3);
  EXPECT_EQ(result.request_hits, (std::vector<uint32_t>{0, 3, 2}));
  EXPECT_EQ(result.block_refs, 13U);
  EXPECT_EQ(result.block_hits, 5U);
}

TEST(Replay, DeeperBlocksWeighMore) {
  EXPECT_DOUBLE_EQ(weight_of_first(0, 512), 0);
  EXPECT_DOUBLE_EQ(weight_of_first(1, 512), 1 + 512 / 32'768.0);
  EXPECT_DOUBLE_EQ(weight_of_first(64, 512) - weight_of_first(63, 512), 2);
  const Trace trace = trace_of({{1, 2, 3}, {1, 2, 7}});
  const ReplayResult result = replayed(trace, "lru", 10);
  EXPECT_DOUBLE_EQ(result.weighted_refs, 2 * weight_of_first(3, 512));
  EXPECT_DOUBLE_EQ(result.weighted_hits, weight_of_first(2, 512));
}

TEST(Replay, WhatCannotBeDoneIsSaid) {
  const Trace trace = trace_of({{1}});
  ReplayResult result;
  EXPECT_EQ(replay(trace, {.policy = "nonsense", .capacity_blocks = 5}, result),
            "there is no policy 'nonsense'");
  EXPECT_EQ(replay(trace, {.policy = "lru", .capacity_blocks = 0}, result),
            "a cache has at least one block");
  EXPECT_EQ(replay(trace, {.policy = "lru", .capacity_blocks = uint64_t{1} << 40U}, result),
            "a cache has at most 134217728 blocks");
}

TEST(Replay, ProgressIsTold) {
  const Trace trace = trace_of(random_paths(1, 600));
  uint64_t told = 0;
  ReplayResult result;
  ASSERT_EQ(replay(trace,
                   {.policy = "lru",
                    .capacity_blocks = 10,
                    .progress = [&](uint64_t requests) { told = requests; }},
                   result),
            "");
  EXPECT_EQ(told, 512U);
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, DecidesWithoutTheFuture) {
  std::vector<Path> paths = random_paths(3, 400);
  const std::vector<uint32_t> hits = replayed(trace_of(paths), GetParam(), 30).request_hits;
  // Another end: the first half is decided as before.
  const std::vector<Path> other = random_paths(4, 400);
  paths.resize(200);
  for (Path path : other) {
    for (uint32_t& id : path) id += 1'000'000;
    paths.push_back(path);
  }
  const std::vector<uint32_t> changed = replayed(trace_of(paths), GetParam(), 30).request_hits;
  EXPECT_TRUE(std::equal(hits.begin(), hits.begin() + 200, changed.begin()));
  EXPECT_FALSE(std::equal(hits.begin() + 200, hits.end(), changed.begin() + 200));
}

TEST_P(EveryPolicy, RepeatsItself) {
  const Trace trace = trace_of(random_paths(5, 300));
  for (const bool hints : {false, true}) {
    EXPECT_EQ(replayed(trace, GetParam(), 25, hints).request_hits,
              replayed(trace, GetParam(), 25, hints).request_hits);
  }
}

std::vector<std::string> policies() {
  std::vector<std::string> names;
  for (const std::string_view name : retain::policy_names()) names.emplace_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::ValuesIn(policies()),
                         [](const auto& policy) { return policy.param; });

// The published figures of three real traces, to the second decimal. Read at run time, never
// committed.
class PublishedFigures : public ::testing::TestWithParam<const char*> {};

struct Figures {
  const char* trace;
  uint64_t requests;
  uint32_t unique_blocks;
  const char* lru[8];
  const char* min[8];
};
constexpr double kPercents[8] = {0.5, 1, 2, 3, 5, 10, 20, 40};
constexpr Figures kFigures[] = {
    {"mooncake_conversation",
     12'031,
     170'899,
     {"4.58", "5.44", "8.01", "12.73", "20.22", "28.82", "35.85", "37.55"},
     {"18.50", "25.01", "32.06", "35.75", "38.19", "38.19", "38.19", "38.19"}},
    {"agent_dev",
     17'427,
     143'273,
     {"6.92", "25.76", "62.90", "80.15", "91.15", "95.04", "96.05", "96.21"},
     {"38.53", "59.79", "81.06", "89.24", "94.29", "96.17", "96.22", "96.22"}},
    {"mix_dev",
     7'293,
     111'461,
     {"2.02", "3.25", "9.59", "20.76", "43.68", "63.30", "73.20", "77.11"},
     {"19.38", "30.65", "46.24", "56.44", "66.74", "75.81", "78.07", "78.07"}},
};

TEST_P(PublishedFigures, LruAndMinAreReproduced) {
  const char* folder = std::getenv("STEMMA_TRACES");
  if (folder == nullptr) GTEST_SKIP() << "STEMMA_TRACES does not say where real traces are";
  for (const Figures& figures : kFigures) {
    if (std::string(figures.trace) != GetParam()) continue;
    const std::string path = std::string(folder) + "/" + figures.trace + ".jsonl.zst";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    Trace trace;
    LoadReport report;
    const std::string problem = load_trace(path, {}, trace, report);
    if (problem.find("this build cannot read") != std::string::npos) GTEST_SKIP() << problem;
    ASSERT_EQ(problem, "");
    EXPECT_EQ(trace.requests.size(), figures.requests);
    EXPECT_EQ(trace.unique_blocks, figures.unique_blocks);
    for (int i = 0; i < 8; ++i) {
      const uint64_t capacity = trace.blocks_at_percent(kPercents[i]);
      const auto percent = [&](const char* policy) {
        char text[32];
        std::snprintf(text, sizeof text, "%.2f",
                      100 * replayed(trace, policy, capacity).hit_ratio());
        return std::string(text);
      };
      EXPECT_EQ(percent("lru"), figures.lru[i]) << kPercents[i] << " %";
      EXPECT_EQ(percent("min"), figures.min[i]) << kPercents[i] << " %";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, PublishedFigures,
                         ::testing::Values("mooncake_conversation", "agent_dev", "mix_dev"),
                         [](const auto& trace) { return std::string(trace.param); });

}  // namespace
}  // namespace stemma::replay
