#include "engine/llama/cell_map.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace stemma::engine {
namespace {

constexpr SequenceId kA{0};
constexpr SequenceId kB{1};
constexpr SequenceId kC{2};

class Cells : public ::testing::Test {
 protected:
  // A forward pass: `count` tokens of each sequence, from its current position.
  void pass(const std::vector<std::pair<SequenceId, uint32_t>>& parts) {
    std::vector<BatchItem> batch;
    for (const auto& [sequence, count] : parts) {
      for (uint32_t i = 0; i < count; ++i)
        batch.push_back({1, at_[to_index(sequence)]++, sequence});
    }
    map_.computed(batch);
  }
  void go_back(SequenceId sequence, uint32_t n) {
    map_.cut(sequence, n);
    at_[to_index(sequence)] = n;
  }
  uint32_t pieces(SequenceId sequence) {
    return map_.pieces(sequence, {0, at_[to_index(sequence)]});
  }

  CellMap map_{3, 1000, 512};
  uint32_t at_[3] = {0, 0, 0};
};

TEST_F(Cells, PromptsAndAnswersAloneAreOnePiece) {
  pass({{kA, 100}});
  pass({{kA, 50}});
  for (int i = 0; i < 20; ++i) pass({{kA, 1}});
  EXPECT_EQ(pieces(kA), 1U);
  EXPECT_EQ(map_.pieces(kA, {20, 21}), 1U);
  EXPECT_EQ(map_.pieces(kA, {500, 600}), 1U) << "nothing is there";
}

TEST_F(Cells, AnswersInCompanyAreAPieceForEachToken) {
  pass({{kA, 100}, {kB, 30}});
  for (int i = 0; i < 20; ++i) pass({{kA, 1}, {kB, 1}});
  EXPECT_EQ(pieces(kA), 21U);
  EXPECT_EQ(pieces(kB), 21U);
  EXPECT_EQ(map_.pieces(kA, {0, 100}), 1U);
  EXPECT_EQ(map_.pieces(kA, {95, 101}), 2U);
}

TEST_F(Cells, HolesThatOthersLeaveAreFilled) {
  pass({{kA, 10}, {kB, 10}});
  for (int i = 0; i < 20; ++i) pass({{kA, 1}, {kB, 1}});
  go_back(kA, 0);
  pass({{kC, 40}});
  EXPECT_EQ(pieces(kC), 1U + 20U + 1U) << "A's prompt, A's answer, and what lies behind all";
}

TEST_F(Cells, CopiesShareCellsUntilBothAreGone) {
  pass({{kA, 10}});
  map_.copied(kA, kB, {0, 10});
  at_[1] = 10;
  go_back(kA, 0);
  pass({{kC, 5}});
  EXPECT_EQ(map_.pieces(kB, {0, 10}), 1U);
  go_back(kB, 0);
  pass({{kA, 15}});
  EXPECT_EQ(pieces(kA), 2U) << "ten cells before C's, five behind them";
}

TEST_F(Cells, WhatIsLoadedFillsHolesToo) {
  pass({{kA, 10}, {kB, 10}});
  go_back(kA, 0);
  map_.loaded(kC, {0, 30}, {0, 25});
  EXPECT_EQ(map_.pieces(kC, {0, 25}), 2U);
  pass({{kA, 5}});
  EXPECT_EQ(pieces(kA), 1U) << "in the cells of what was not wanted";
}

TEST_F(Cells, AMapThatIsNotTrueStartsOver) {
  pass({{kA, 900}});
  at_[1] = 0;
  map_.loaded(kB, {0, 500}, {0, 500});
  EXPECT_EQ(pieces(kA), 1U);
  go_back(kA, 0);
  pass({{kA, 10}});
  EXPECT_EQ(pieces(kA), 1U);
}

}  // namespace
}  // namespace stemma::engine
