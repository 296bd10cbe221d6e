#include "engine/llama/cell_runs.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma::engine {
namespace {

constexpr SequenceId kA{0};
constexpr SequenceId kB{1};

class Runs : public ::testing::Test {
 protected:
  // A forward pass: `count` tokens of each of these, from the positions they are at.
  void pass(const std::vector<std::pair<SequenceId, uint32_t>>& parts) {
    std::vector<BatchItem> batch;
    for (const auto& [sequence, count] : parts) {
      for (uint32_t i = 0; i < count; ++i) batch.push_back({1, at_[to_index(sequence)]++, sequence});
    }
    runs_.computed(batch);
  }
  void go_back(SequenceId sequence, uint32_t n) {
    runs_.cut(sequence, n);
    at_[to_index(sequence)] = n;
  }
  uint32_t count(SequenceId sequence) {
    return runs_.count(sequence, {0, at_[to_index(sequence)]});
  }

  CellRuns runs_{3};
  uint32_t at_[3] = {0, 0, 0};
};

TEST_F(Runs, PromptsAloneAreOneRun) {
  pass({{kA, 100}});
  pass({{kA, 50}});
  EXPECT_EQ(count(kA), 1U);
  EXPECT_EQ(runs_.count(kA, {20, 21}), 1U);
}

TEST_F(Runs, AnswersAloneAreOneRun) {
  pass({{kA, 100}});
  for (int i = 0; i < 20; ++i) pass({{kA, 1}});
  EXPECT_EQ(count(kA), 1U);
}

TEST_F(Runs, AnswersInCompanyAreARunForEachToken) {
  pass({{kA, 100}, {kB, 30}});
  for (int i = 0; i < 20; ++i) pass({{kA, 1}, {kB, 1}});
  EXPECT_EQ(count(kA), 21U);
  EXPECT_EQ(count(kB), 21U);
  EXPECT_EQ(runs_.count(kA, {0, 100}), 1U);
  EXPECT_EQ(runs_.count(kA, {100, 120}), 20U);
  EXPECT_EQ(runs_.count(kA, {95, 101}), 2U);
}

TEST_F(Runs, WhatIsCutBeginsAnew) {
  pass({{kA, 100}});
  go_back(kA, 40);
  pass({{kA, 10}});
  EXPECT_EQ(count(kA), 2U);
  go_back(kA, 0);
  pass({{kA, 10}});
  EXPECT_EQ(count(kA), 1U);
}

TEST_F(Runs, CopiesHaveTheRunsOfTheirSource) {
  pass({{kA, 10}});
  for (int i = 0; i < 5; ++i) pass({{kB, 1}, {kA, 1}});
  runs_.copied(kA, SequenceId{2}, {0, 13});
  EXPECT_EQ(runs_.count(SequenceId{2}, {0, 13}), runs_.count(kA, {0, 13}));
}

TEST_F(Runs, WhatWasLoadedIsOneRunACall) {
  runs_.loaded(kA, {0, 2048});
  runs_.loaded(kA, {2048, 3000});
  EXPECT_EQ(runs_.count(kA, {0, 3000}), 2U);
  at_[0] = 3000;
  pass({{kA, 10}});
  EXPECT_EQ(count(kA), 3U);
}

}  // namespace
}  // namespace stemma::engine
