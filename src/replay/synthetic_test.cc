#include "replay/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "replay/replay.h"

namespace stemma::replay {
namespace {

class Synthetic : public ::testing::TestWithParam<Workload> {};

TEST_P(Synthetic, IsATraceThatCanBeWrittenAndRead) {
  const Trace made = make_trace({.workload = GetParam(), .requests = 800, .seed = 7});
  ASSERT_EQ(made.requests.size(), 800U);
  Trace read;
  LoadReport report;
  ASSERT_EQ(load_trace(*ByteSource::of(write_trace(made)), {}, read, report), "");
  EXPECT_EQ(read.words, made.words);
  EXPECT_EQ(read.block_refs, made.block_refs);
  EXPECT_EQ(read.unique_blocks, made.unique_blocks);
  EXPECT_EQ(read.sessions, made.sessions);
}

TEST_P(Synthetic, SeedsDecide) {
  const auto text = [](uint64_t seed) {
    return write_trace(make_trace({.workload = GetParam(), .requests = 300, .seed = seed}));
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

// Recorded and published traces count them this way.
TEST_P(Synthetic, TurnsCountFromOne) {
  const Trace trace = make_trace({.workload = GetParam(), .requests = 3000});
  std::map<uint32_t, uint32_t> turns;
  bool subagents_first = false;
  uint32_t most = 0;
  for (const TraceRequest& request : trace.requests) {
    ASSERT_GE(request.turn, 1U);
    if (request.subagent) {
      subagents_first = subagents_first || request.turn == 1;
    } else {
      ASSERT_EQ(request.turn, ++turns[request.session]) << "session " << request.session;
      most = std::max(most, request.turn);
    }
  }
  EXPECT_EQ(most > 1, GetParam() != Workload::rag);
  EXPECT_EQ(subagents_first, GetParam() == Workload::agents || GetParam() == Workload::mix);
}

TEST_P(Synthetic, RepeatsItselfEnoughToBeWorthACache) {
  const Trace trace = make_trace({.workload = GetParam(), .requests = 3000});
  ReplayResult result;
  ASSERT_EQ(replay(trace, {.policy = "infinite", .capacity_blocks = 1}, result), "");
  EXPECT_GT(result.hit_ratio(), 0.2);
  EXPECT_LT(result.hit_ratio(), 0.995);
  const double seconds =
      static_cast<double>(trace.requests.back().time_ns - trace.requests.front().time_ns) / 1e9;
  EXPECT_GT(3000 / seconds, 0.7);
  EXPECT_LT(3000 / seconds, 6) << "two a second were asked for";
}

INSTANTIATE_TEST_SUITE_P(Workloads, Synthetic,
                         ::testing::Values(Workload::chat, Workload::agents, Workload::rag,
                                           Workload::mix));

TEST(Workloads, HaveNames) {
  EXPECT_EQ(parse_workload("agents"), Workload::agents);
  EXPECT_FALSE(parse_workload("agent").has_value());
}

}  // namespace
}  // namespace stemma::replay
