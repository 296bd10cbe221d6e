#include "retain/rivals.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace stemma::retain {
namespace {

// Conversations of ten tokens each, in caches of 40. The first three come back again and again,
// with ten others between two of their uses; the index knows that.
class RivalsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kLow = 100;
  static constexpr uint32_t kHigh = 200;
  static constexpr uint64_t kCapacity = 40;
  void SetUp() override {
    ASSERT_TRUE(rivals_.create(1000));
    ASSERT_TRUE(rivals_.prepare(1000));
  }
  void use(uint32_t who, bool used_before, uint32_t depth, uint32_t level) {
    const uint32_t from = used_before ? who : Rivals::kNone;
    rivals_.use(who, from, Rivals::kNone, used_before ? depth : 0, depth, kCapacity);
    rivals_.place(who, level);
  }
  // One round of returning and other conversations, at these levels.
  void round(uint32_t number, uint32_t regular_level, uint32_t other_level) {
    for (uint32_t who = 0; who < 3; ++who) use(who, number != 0, 10, regular_level);
    for (uint32_t i = 0; i < 10; ++i) {
      const uint32_t who = 10 + (number * 10 + i) % 900;
      rivals_.forget(who);
      use(who, false, 10, other_level);
    }
    rivals_.check_invariants();
  }
  Rivals rivals_;
};

TEST_F(RivalsTest, TrustsAnIndexAsSoonAsItFindsMore) {
  round(0, kHigh, kLow);
  EXPECT_FALSE(rivals_.index_is_ahead()) << "nothing was found yet";
  for (uint32_t i = 1; i < 20; ++i) {
    round(i, kHigh, kLow);
    ASSERT_TRUE(rivals_.index_is_ahead());
  }
}

TEST_F(RivalsTest, DoesNotTrustAnIndexThatFindsAsMuch) {
  for (uint32_t i = 0; i < 20; ++i) round(i, kLow, kHigh);
  EXPECT_FALSE(rivals_.index_is_ahead());
}

TEST_F(RivalsTest, DoubtsAnIndexThatLosesItsLead) {
  for (uint32_t i = 0; i < 10; ++i) round(i, kHigh, kLow);
  ASSERT_TRUE(rivals_.index_is_ahead());
  // LRU has all four. Of these the index now keeps the ones never used again: it finds less, and
  // nothing deeper than it had found before.
  const uint32_t shallow = 3;
  for (uint32_t i = 0; i < 2000 && rivals_.index_is_ahead(); ++i) {
    use(950 + i % 4, i > 3, shallow, kLow);
    if (i < 4) use(960 + i, false, 10, kHigh);
  }
  EXPECT_FALSE(rivals_.index_is_ahead());
}

TEST_F(RivalsTest, DoesNotTrustAnIndexThatFindsMoreButLessOfWhatLiesDeep) {
  // Four short ones come back when more than fits was used since; a longer one twice within what
  // fits. The index keeps the short ones, 12 tokens, LRU the longer one, 8 tokens of which some lie
  // deeper.
  uint32_t next = 100;
  const auto use_new = [&](uint32_t depth) {
    rivals_.forget(next);
    use(next++, false, depth, kLow + 1);
  };
  for (uint32_t i = 0; i < 50; ++i) {
    for (uint32_t who = 0; who < 4; ++who) use(who, i != 0, 3, kHigh);
    use(8, i != 0, 8, kLow);
    use_new(25);
    use(8, true, 8, kLow);
    use_new(30);
    rivals_.check_invariants();
  }
  EXPECT_FALSE(rivals_.index_is_ahead());
}

TEST_F(RivalsTest, BooksBalanceWhenConversationsTurnBranchAndAreForgotten) {
  use(0, false, 30, kHigh);
  rivals_.use(0, 0, 1, 10, 15, kCapacity);  // It goes on after ten, and leaves twenty.
  for (const uint32_t who : {0U, 1U}) rivals_.place(who, kLow);
  rivals_.check_invariants();
  rivals_.use(2, 0, Rivals::kNone, 5, 20, kCapacity);  // Another goes off after five.
  rivals_.place(2, kHigh);
  rivals_.check_invariants();
  for (const uint32_t who : {1U, 0U, 2U}) {
    rivals_.forget(who);
    rivals_.check_invariants();
  }
}

}  // namespace
}  // namespace stemma::retain
