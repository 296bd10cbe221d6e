#include "cache/books/last_uses.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma::cache {
namespace {

class LastUsesTest : public testing::Test {
 protected:
  LastUsesTest() {
    EXPECT_TRUE(tree_.create({.cell_tokens = 1, .first_cells = 0, .extra_cells = 400}));
    EXPECT_TRUE(tree_.ensure(300));
    tree_.make_root(root(), {});
    for (uint32_t i = 1; i < 200; ++i) grow(i);
  }
  CellIndex root() const { return tree_.first_extra(); }
  CellIndex cell(uint32_t i) const { return root() + i; }
  void grow(uint32_t i) {
    const std::vector<uint32_t> words{i};
    tree_.publish(cell(i), root(), tree_.sentinel(), words, false, nullptr);
  }

  tree::PrefixTree tree_;
  LastUses uses_{tree_};
};

TEST_F(LastUsesTest, ASessionsLastCellIsKnownUntilItEnds) {
  uses_.used(SessionId{1}, cell(1));
  uses_.used(SessionId{1}, cell(2));
  EXPECT_EQ(uses_.end(SessionId{1}), cell(2));
  EXPECT_EQ(uses_.end(SessionId{1}), kNoCell);
}

TEST_F(LastUsesTest, ACellThatSomebodyUsedSinceIsNotTheSessionsAnyMore) {
  uses_.used(SessionId{1}, cell(1));
  uses_.used(SessionId{2}, cell(1));
  EXPECT_EQ(uses_.end(SessionId{1}), kNoCell);
  EXPECT_EQ(uses_.end(SessionId{2}), cell(1));
  uses_.used(SessionId{3}, cell(3));
  uses_.used(kNoSession, cell(3));
  EXPECT_EQ(uses_.end(SessionId{3}), kNoCell);
}

TEST_F(LastUsesTest, ACellThatWasFreedAndUsedAgainIsAnother) {
  uses_.used(SessionId{1}, cell(1));
  tree_.remove(cell(1));
  grow(1);
  EXPECT_EQ(uses_.end(SessionId{1}), kNoCell);
}

TEST_F(LastUsesTest, SessionsThatMeanNothingAnyMoreAreForgotten) {
  uses_.set_cells(100);
  for (uint64_t i = 1; i <= 10'000; ++i) uses_.used(SessionId{i}, cell(1 + i % 100));
  EXPECT_LE(uses_.size(), 100u + 25 + 64 + 1);
  EXPECT_EQ(uses_.end(SessionId{10'000}), cell(1));
}

}  // namespace
}  // namespace stemma::cache
