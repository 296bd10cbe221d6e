#include "mover/cuda/slot_ring.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stemma::mover::cuda {
namespace {

TEST(SlotRing, SlotsThatAreOutAreNotGivenAgain) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const uint32_t slots = 1 + random() % 40;
    SlotRing ring(slots);
    std::vector<bool> out(slots);
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    uint32_t given = 0;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        const uint32_t count = 1 + random() % slots;
        const auto begin = ring.take(count);
        if (!begin) {
          // An idle ring has room for everything.
          ASSERT_FALSE(ranges.empty());
          continue;
        }
        ASSERT_LE(*begin + count, slots);
        for (uint32_t i = *begin; i < *begin + count; ++i) {
          ASSERT_FALSE(out[i]);
          out[i] = true;
        }
        ranges.emplace_back(*begin, count);
        ++given;
      } else if (!ranges.empty()) {
        const size_t which = random() % ranges.size();
        const auto [begin, count] = ranges[which];
        ranges.erase(ranges.begin() + static_cast<ptrdiff_t>(which));
        for (uint32_t i = begin; i < begin + count; ++i) out[i] = false;
        ring.give_back(begin);
        ASSERT_EQ(ring.idle(), ranges.empty());
      }
    }
    EXPECT_GT(given, 100U);
  }
}

TEST(SlotRing, RoomThatCameBackOutOfOrderIsFoundWhenTheOldestIsBack) {
  SlotRing ring(10);
  ASSERT_EQ(ring.take(4), 0U);
  ASSERT_EQ(ring.take(4), 4U);
  ring.give_back(4);
  EXPECT_EQ(ring.take(4), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(10), 0U);
}

}  // namespace
}  // namespace stemma::mover::cuda
