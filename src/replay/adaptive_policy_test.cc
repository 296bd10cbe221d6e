// The policy `adaptive` as a whole, through the real cache: its choices depend on the past only, and
// it is nowhere materially worse than LRU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "replay/arguments.h"
#include "replay/replay.h"
#include "replay/synthetic.h"
#include "support/rooms/replays.h"

namespace stemma::replay {
namespace {

using test::replayed;

uint64_t unique_blocks(const Trace& trace) {
  const ReplayResult all = replayed(trace, "infinite", 1, false);
  return all.block_refs - all.block_hits;
}

TEST(AdaptiveReplay, WhatComesLaterChangesNothingBefore) {
  const Trace trace = make_trace({.workload = Workload::mix, .requests = 4000, .seed = 3});
  constexpr size_t kSame = 3000;
  Trace other = trace;
  // Another future: every second request is missing, and times are stretched.
  for (size_t i = kSame; i < other.requests.size(); ++i) {
    other.requests[i] =
        trace.requests[std::min(kSame + (i - kSame) * 2, trace.requests.size() - 1)];
  }
  const uint64_t capacity = unique_blocks(trace) / 50;
  for (const bool hints : {false, true}) {
    const ReplayResult one = replayed(trace, "adaptive", capacity, hints);
    const ReplayResult two = replayed(other, "adaptive", capacity, hints);
    ASSERT_EQ(one.request_hits.size(), two.request_hits.size());
    const auto differ =
        std::mismatch(one.request_hits.begin(), one.request_hits.end(), two.request_hits.begin());
    EXPECT_GE(differ.first - one.request_hits.begin(), static_cast<ptrdiff_t>(kSame));
    EXPECT_NE(one.request_hits, two.request_hits);
    EXPECT_NE(one.request_hits, replayed(trace, "lru", capacity, hints).request_hits)
        << "it decided something itself";
  }
}

TEST(AdaptiveReplay, SameCallsGiveSameAnswers) {
  const Trace trace = make_trace({.workload = Workload::agents, .requests = 2000, .seed = 5});
  const uint64_t capacity = unique_blocks(trace) / 50;
  EXPECT_EQ(replayed(trace, "adaptive", capacity, true).request_hits,
            replayed(trace, "adaptive", capacity, true).request_hits);
}

// On traffic it was never tried on: synthetic, of every kind.
TEST(AdaptiveReplay, IsNowhereMuchWorseThanLruAndSomewhereMuchBetter) {
  constexpr double kNoise = 0.003;  // Of 4,000 requests: a dozen.
  double best = 0;
  for (const Workload workload : {Workload::chat, Workload::agents, Workload::rag, Workload::mix}) {
    const Trace trace = make_trace({.workload = workload, .requests = 4000, .seed = 11});
    const uint64_t unique = unique_blocks(trace);
    for (const uint64_t percent : {1U, 3U, 10U, 40U}) {
      const uint64_t capacity = unique * percent / 100;
      const ReplayResult lru = replayed(trace, "lru", capacity, false);
      for (const bool hints : {false, true}) {
        const ReplayResult ours = replayed(trace, "adaptive", capacity, hints);
        const std::string where = "workload " + std::to_string(static_cast<int>(workload)) + ", " +
                                  std::to_string(percent) + " %, hints " + (hints ? "on" : "off");
        EXPECT_GE(ours.hit_ratio(), lru.hit_ratio() - kNoise) << where;
        EXPECT_GE(ours.weighted_hit_ratio(), lru.weighted_hit_ratio() - kNoise) << where;
        best = std::max(best, ours.hit_ratio() - lru.hit_ratio());
      }
    }
  }
  EXPECT_GT(best, 0.02);
}

// The figures of docs/retention.md, on real traces.
TEST(AdaptiveReplay, ClosesItsShareOfTheGapOnRealTraces) {
  const char* folder = std::getenv("STEMMA_TRACES");
  if (folder == nullptr) GTEST_SKIP() << "STEMMA_TRACES does not say where real traces are";
  std::vector<double> closed[2];
  for (const char* name : {"mooncake_conversation", "agent_dev", "mix_dev"}) {
    Trace trace;
    LoadReport report;
    ASSERT_EQ(load_trace(std::string(folder) + "/" + name + ".jsonl.zst", {}, trace, report), "");
    const uint64_t unique = unique_blocks(trace);
    for (const uint64_t permille : {5U, 10U, 20U, 30U, 50U, 100U, 200U, 400U}) {
      const uint64_t capacity = unique * permille / 1000;
      const ReplayResult lru = replayed(trace, "lru", capacity, false);
      const double gap = replayed(trace, "min", capacity, false).hit_ratio() - lru.hit_ratio();
      const bool scarce = permille <= 30;
      const double gdsf =
          scarce ? replayed(trace, "gdsf", capacity, false).weighted_hit_ratio() : 0;
      for (const bool hints : {false, true}) {
        const ReplayResult ours = replayed(trace, "adaptive", capacity, hints);
        const std::string where = std::string(name) + " at " + std::to_string(permille) +
                                  " per mille, hints " + (hints ? "on" : "off");
        EXPECT_GE(ours.hit_ratio(), lru.hit_ratio() - 0.0005) << where;
        EXPECT_GE(ours.weighted_hit_ratio(), lru.weighted_hit_ratio() - 0.0005) << where;
        if (scarce) {
          EXPECT_GT(ours.weighted_hit_ratio(), lru.weighted_hit_ratio()) << where;
          EXPECT_GT(ours.weighted_hit_ratio(), gdsf) << where;
        }
        if (gap >= 0.03)
          closed[hints ? 1 : 0].push_back((ours.hit_ratio() - lru.hit_ratio()) / gap);
      }
    }
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  EXPECT_GE(mean(closed[0]), 0.30);
  EXPECT_GE(mean(closed[1]), 0.36);
}

TEST(AdaptiveReplay, ItsOldNameIsAcceptedAndItIsListedOnce) {
  ReplayArguments arguments;
  const std::string_view words[] = {"trace.jsonl", "--policy", "default", "--policy",
                                    "adaptive",    "--policy", "lru"};
  EXPECT_EQ(parse_replay(words, arguments), "");
  EXPECT_EQ(arguments.policies, (std::vector<std::string>{"adaptive", "lru"}));
}

}  // namespace
}  // namespace stemma::replay
