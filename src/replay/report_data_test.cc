#include "replay/report_data.h"

#include <gtest/gtest.h>

#include <string>

#include "replay/report.h"
#include "replay/sizes.h"
#include "replay/sweep.h"
#include "replay/ttft.h"
#include "support/rooms/replays.h"

namespace stemma::replay {
namespace {

using test::replayed;
using test::trace_in;

// A conversation of two turns, a stranger, and the conversation again after an hour.
Trace small() {
  return trace_in(R"({"timestamp":0,"input_length":1024,"hash_ids":[1,2],"session_id":"a"})"
                  "\n"
                  R"({"timestamp":2000,"input_length":1600,"hash_ids":[1,2,3,4],"session_id":"a"})"
                  "\n"
                  R"({"timestamp":3000,"input_length":512,"hash_ids":[9]})"
                  "\n"
                  R"({"timestamp":3700000,"input_length":1024,"hash_ids":[1,2],"session_id":"a"})"
                  "\n"
                  R"({"timestamp":3700000,"input_length":512,"hash_ids":[9],"session_id":"b"})"
                  "\n");
}

TEST(ReportData, GapsAreCountedOncePerUse) {
  const GapView gaps = reuse_gaps(small());
  EXPECT_EQ(gaps.first_uses, 4U);
  ASSERT_EQ(gaps.labels.size(), gaps.refs.size());
  const auto at = [&](const std::string& label) {
    for (size_t i = 0; i < gaps.labels.size(); ++i) {
      if (gaps.labels[i] == label) return gaps.refs[i];
    }
    return ~uint64_t{0};
  };
  EXPECT_EQ(at("1-5 s"), 2U);
  EXPECT_EQ(at("1-4 h"), 3U);
  EXPECT_EQ(at("under 1 s"), 0U);
}

TEST(ReportData, DepthIsWhereABlockEnds) {
  const Trace trace = small();
  const DepthView view = by_depth(trace, replayed(trace, "lru", 100));
  EXPECT_EQ(view.limit_tokens, (std::vector<uint64_t>{1024, 2048}));
  EXPECT_EQ(view.refs, (std::vector<uint64_t>{8, 1}));
  EXPECT_EQ(view.hits, (std::vector<uint64_t>{5, 0}));
}

TEST(ReportData, SessionsThatMissMostComeFirst) {
  const Trace trace = small();
  const SessionView view = by_session(trace, replayed(trace, "lru", 100));
  ASSERT_EQ(view.sessions.size(), 2U);
  EXPECT_EQ(view.sessions[0].session, 1U);
  EXPECT_EQ(view.sessions[0].requests, 3U);
  EXPECT_EQ(view.sessions[0].refs, 7U);
  EXPECT_EQ(view.sessions[0].hits, 4U);
  EXPECT_EQ(view.tenths[8], 1U) << "4 of 5 after the first request";
  EXPECT_EQ(view.tenths[9], 0U) << "who came once is not among them";
}

TEST(ReportData, EqualHitsAreFoundBetweenThePoints) {
  const auto point = [](uint64_t capacity, uint64_t hits) {
    ReplayResult result;
    result.capacity_blocks = capacity;
    result.block_refs = 100;
    result.block_hits = hits;
    return result;
  };
  const ReplayResult a = point(10, 20);
  const ReplayResult b = point(20, 40);
  const std::vector<const ReplayResult*> curve{&a, &b};
  EXPECT_DOUBLE_EQ(*blocks_needed(curve, 0.3), 15);
  EXPECT_DOUBLE_EQ(*blocks_needed(curve, 0.1), 5);
  EXPECT_DOUBLE_EQ(*blocks_needed(curve, 0.4), 20);
  EXPECT_FALSE(blocks_needed(curve, 0.41).has_value());
}

TEST(ReportData, ThePolicyThatWouldBeUsedIsRecommended) {
  EXPECT_EQ(recommended_policy({"min", "lru", "adaptive"}), "adaptive");
  EXPECT_EQ(recommended_policy({"min", "lru", "sieve"}), "lru");
  EXPECT_EQ(recommended_policy({"min", "infinite"}), "");
}

TEST(Ttft, LoadsOrComputesWhicheverIsFaster) {
  const Trace trace = small();
  TtftModel model;
  model.prefill_tokens_per_second = 512;  // A block a second.
  model.kv_bytes_per_token = 1;
  model.tiers = {{"host", 1000, 5120}, {"tape", 1000, 51.2}};  // 0.1 s and 10 s a block.
  EXPECT_NEAR(expected_ttft(trace, model, {}).mean_s, (2 + 3.125 + 1 + 2 + 1) / 5, 1e-9);
  const ReplayResult device = replayed(trace, "lru", 2);
  const ReplayResult with_host = replayed(trace, "lru", 100);
  ASSERT_EQ(device.request_hits, (std::vector<uint32_t>{0, 2, 0, 1, 0}));
  ASSERT_EQ(with_host.request_hits, (std::vector<uint32_t>{0, 2, 0, 2, 1}));
  EXPECT_NEAR(expected_ttft(trace, model, {&device}).mean_s, (2 + 1.125 + 1 + 1 + 1) / 5, 1e-9);
  const Ttft host = expected_ttft(trace, model, {&device, &with_host});
  EXPECT_NEAR(host.mean_s, (2 + 1.125 + 1 + 0.1 + 0.1) / 5, 1e-9);
  EXPECT_NEAR(host.p50_s, 1, 1e-9);
  // Loading from tape takes longer than computing, so nothing is loaded.
  EXPECT_NEAR(expected_ttft(trace, model, {&device, &device, &with_host}).mean_s,
              expected_ttft(trace, model, {&device}).mean_s, 1e-9);
}

TEST(Sizes, AreReadAndWrittenAsPeopleDo) {
  EXPECT_EQ(parse_bytes("40GB"), 40'000'000'000U);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536U);
  EXPECT_EQ(parse_bytes("7B"), 7U);
  for (const char* bad : {"", "B", "GB", "40", "40G", "4iB", "-1GB", "x1GB", "1e30GB", "nanB"}) {
    EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
  }
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1'234'567), "1.23 MB");
  EXPECT_EQ(format_bytes(60'000'000'000), "60.0 GB");
  EXPECT_EQ(format_bytes(999'999'999), "1.00 GB");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Sweep, AnswersDoNotDependOnThreads) {
  const Trace trace = small();
  const auto hits = [&](uint32_t threads) {
    std::vector<ReplayResult> results;
    double last = 0;
    EXPECT_EQ(sweep(trace,
                    {.policies = {"lru", "min", "infinite"},
                     .capacities = {1, 2, 4},
                     .threads = threads,
                     .progress = [&](double part) { last = part; }},
                    results),
              "");
    EXPECT_DOUBLE_EQ(last, 1);
    std::vector<uint64_t> out;
    for (const ReplayResult& r : results) out.insert(out.end(), {r.capacity_blocks, r.block_hits});
    return out;
  };
  EXPECT_EQ(hits(1), hits(4));
  EXPECT_EQ(hits(1).size(), 14U) << "infinite has one size";
  std::vector<ReplayResult> results;
  EXPECT_EQ(sweep(trace, {.policies = {"none"}, .capacities = {1}}, results),
            "none: there is no policy 'none'");
}

TEST(Report, NothingInItCanEndTheScript) {
  Trace trace = small();
  trace.name = "</script><b>\"\\\n";
  std::vector<ReplayResult> results;
  const std::vector<std::string> policies{"lru", "min"};
  const std::vector<uint64_t> capacities{2, 4};
  ASSERT_EQ(
      sweep(trace, {.policies = policies, .capacities = capacities, .keep_request_hits = true},
            results),
      "");
  const std::string json = report_json(
      {.trace = trace, .results = results, .policies = policies, .capacities = capacities});
  EXPECT_EQ(json.find('<'), std::string::npos);
  EXPECT_NE(json.find(R"("name":"\u003c/script>\u003cb>\"\\\n")"), std::string::npos);
  const std::string page = report_page(
      {.trace = trace, .results = results, .policies = policies, .capacities = capacities});
  EXPECT_NE(page.find(json), std::string::npos);
  EXPECT_EQ(page.find("@DATA@"), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg")) << "no outside files";
  EXPECT_EQ(page.find("https://"), std::string::npos);
}

}  // namespace
}  // namespace stemma::replay
