#include "replay/recommend.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replay/sizes.h"
#include "replay/sweep.h"
#include "support/rooms/replays.h"

namespace stemma::replay {
namespace {

using test::trace_in;

// Prompts without anything in common, requested in turn, round after round. With LRU a loop hits
// completely as soon as it fits, and not at all before: a knee at a known place.
Trace loop(uint32_t prompts, uint32_t blocks, uint32_t rounds) {
  std::string text;
  uint64_t now = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t prompt = 0; prompt < prompts; ++prompt) {
      std::string ids;
      for (uint32_t b = 0; b < blocks; ++b) {
        ids += (b == 0 ? "" : ",") + std::to_string(prompt * blocks + b);
      }
      text += "{\"timestamp\":" + std::to_string(now += 10) +
              ",\"input_length\":" + std::to_string(512 * blocks) + ",\"hash_ids\":[" + ids +
              "]}\n";
    }
  }
  return trace_in(text);
}

std::string sentence_for(const Trace& trace, const std::vector<uint64_t>& capacities) {
  std::vector<ReplayResult> results;
  EXPECT_EQ(sweep(trace, {.policies = {"lru"}, .capacities = capacities, .threads = 2}, results),
            "");
  std::vector<const ReplayResult*> curve;
  for (const ReplayResult& result : results) curve.push_back(&result);
  const double unlimited =
      1.0 - static_cast<double>(trace.unique_blocks) / static_cast<double>(trace.block_refs);
  // As if a block had a gigabyte.
  return to_sentence(recommend(curve, unlimited),
                     [](uint64_t blocks) { return format_bytes(blocks * 1'000'000'000); });
}

TEST(Recommendation, AKneeIsFoundWhereItIs) {
  const Trace trace = loop(10, 6, 10);  // 60 blocks, of which 9 of 10 uses are repeated.
  EXPECT_EQ(sentence_for(trace, {20, 40, 59, 60, 61, 80, 200}),
            "With 60.0 GB you get 90 %; more buys nothing.");
}

TEST(Recommendation, SomethingGoodBeforeTheKneeIsNamedFirst) {
  const auto point = [](uint64_t capacity, uint64_t hits) {
    ReplayResult result;
    result.capacity_blocks = capacity;
    result.block_refs = 1000;
    result.block_hits = hits;
    return result;
  };
  const auto say = [&](const std::vector<ReplayResult>& points, double unlimited) {
    std::vector<const ReplayResult*> curve;
    for (const ReplayResult& one : points) curve.push_back(&one);
    return to_sentence(recommend(curve, unlimited),
                       [](uint64_t blocks) { return std::to_string(blocks) + " GB"; });
  };
  EXPECT_EQ(say({point(20, 400), point(40, 710), point(60, 780), point(80, 781)}, 0.782),
            "With 40 GB you get 71 %; 60 GB gives 78 %; more buys nothing.");
  EXPECT_EQ(say({point(20, 400), point(40, 710)}, 0.9),
            "With 40 GB you get 71 %; more would help: without a limit it would be 90 %.");
  EXPECT_EQ(
      say({point(20, 400), point(40, 790), point(80, 850)}, 0.86),
      "With 40 GB you get 79 %; 80 GB gives 85 %; more would help: without a limit it would be "
      "86 %.");
  EXPECT_EQ(say({point(20, 300), point(40, 299)}, 0.3),
            "With 20 GB you get 30 %; more buys nothing.");
  EXPECT_EQ(say({point(20, 0), point(40, 0)}, 0.0),
            "Nothing is worth keeping: no prompt repeats another.");
}

TEST(Recommendation, TooSmallASweepSaysSo) {
  const Trace trace = loop(10, 6, 10);
  EXPECT_EQ(sentence_for(trace, {10, 20}),
            "With 10.0 GB you get 0 %; more would help: without a limit it would be 90 %.");
}

}  // namespace
}  // namespace stemma::replay
