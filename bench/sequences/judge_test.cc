#include "bench/sequences/judge.h"

#include <gtest/gtest.h>

namespace stemma::bench::sequences {
namespace {

Line line(const char* name, Kind kind, uint64_t evaluated, uint32_t wrong_requests = 0) {
  Outcome outcome;
  outcome.evaluated = evaluated;
  outcome.wrong_requests = wrong_requests;
  return {name, kind, {outcome}};
}

Row judged(uint64_t minimum, std::vector<Line> lines) {
  Comparison comparison;
  comparison.workloads = {"edit earlier"};
  comparison.minimum = {minimum};
  comparison.lines = std::move(lines);
  Sheet sheet(Settings{});
  judge_tokens(comparison, sheet);
  return sheet.rows().front();
}

TEST(Judge, AsksForFewerTokensThanTheBestThatIsAboveTheMinimum) {
  const std::vector<Line> others = {line("a", Kind::baseline, 300), line("b", Kind::baseline, 200)};
  const auto with = [&](uint64_t ours) {
    std::vector<Line> lines = others;
    lines.push_back(line("ours", Kind::ours, ours));
    return judged(100, lines);
  };
  EXPECT_TRUE(with(199).passes());
  EXPECT_FALSE(with(200).passes());
  EXPECT_EQ(with(150).baselines.front().name, "b");
  EXPECT_EQ(with(150).name, "full_edit_earlier_tokens");
}

TEST(Judge, AllowsHalfAPerCentWhereTheBestIsTheMinimum) {
  const auto with = [&](uint64_t ours) {
    return judged(1000, {line("a", Kind::baseline, 1000), line("ours", Kind::ours, ours)});
  };
  EXPECT_TRUE(with(1005).passes());
  EXPECT_FALSE(with(1006).passes());
}

TEST(Judge, IsNotImpressedByWrongAnswersAndReferences) {
  const std::vector<Line> lines = {
      line("wrong", Kind::baseline, 10, 1), line("reference", Kind::reference, 20),
      line("right", Kind::baseline, 300), line("ours", Kind::ours, 200)};
  EXPECT_TRUE(judged(5, lines).passes());
  EXPECT_TRUE(judged(5, {line("a", Kind::baseline, 300), line("ours", Kind::ours, 5, 1)}).wrong);
}

}  // namespace
}  // namespace stemma::bench::sequences
