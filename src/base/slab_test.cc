#include "base/slab.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace stemma::base {
namespace {

uint64_t page() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

TEST(Slab, HugeCapacityCostsNothingBeforeItIsUsed) {
  Slab<uint64_t> slab;
  ASSERT_TRUE(slab.reserve(size_t{1} << 37));  // A tebibyte of address space.
  EXPECT_EQ(slab.bytes(), 0U);
  ASSERT_TRUE(slab.commit(0, 10));
  EXPECT_EQ(slab.bytes(), page());
}

TEST(Slab, ElementsNeverMoveAndKeepTheirValues) {
  Slab<uint32_t> slab;
  ASSERT_TRUE(slab.reserve(1'000'000));
  uint32_t* const data = slab.data();
  size_t committed = 0;
  for (size_t end = 1; end <= 1'000'000; end = end * 3 + 1) {
    ASSERT_TRUE(slab.commit(committed, end));
    for (size_t i = committed; i < end; ++i) {
      ASSERT_EQ(slab[i], 0U) << "zeroed when it is first used";
      slab[i] = static_cast<uint32_t>(i) + 1;
    }
    committed = end;
    ASSERT_EQ(slab.data(), data);
  }
  for (size_t i = 0; i < committed; ++i) ASSERT_EQ(slab[i], i + 1);
}

TEST(Slab, RangesMayArriveInAnyOrderAndTwice) {
  Slab<uint32_t> slab;
  ASSERT_TRUE(slab.reserve(100'000));
  ASSERT_TRUE(slab.commit(90'000, 100'000));
  slab[99'999] = 7;
  ASSERT_TRUE(slab.commit(0, 5000));
  slab[4999] = 8;
  ASSERT_TRUE(slab.commit(4000, 95'000));
  EXPECT_EQ(slab[99'999], 7U);
  EXPECT_EQ(slab[4999], 8U);
  EXPECT_EQ(slab[50'000], 0U);
}

TEST(Slab, EmptyRangesAndSlabsAreFine) {
  Slab<uint32_t> slab;
  EXPECT_FALSE(slab);
  EXPECT_TRUE(slab.commit(0, 100)) << "an owner that does not use it need not ask";
  EXPECT_EQ(slab.bytes(), 0U);
  ASSERT_TRUE(slab.reserve(0));
  EXPECT_TRUE(slab);
  EXPECT_TRUE(slab.commit(0, 0));
}

TEST(Slab, MovingHandsOverTheMemory) {
  Slab<uint32_t> first;
  ASSERT_TRUE(first.reserve(100));
  ASSERT_TRUE(first.commit(0, 100));
  first[5] = 55;
  uint32_t* const data = first.data();
  Slab<uint32_t> second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second[5], 55U);
  Slab<uint32_t> third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), page());
}

TEST(Slab, RefusalOfTheSystemIsAnAnswer) {
  Slab<uint64_t> slab;
  EXPECT_FALSE(slab.reserve(size_t{1} << 58));  // 2^61 bytes: no machine has that many addresses.
  EXPECT_FALSE(slab);
}

TEST(SlabDeathTest, MemoryThatWasNotCommittedIsNotThere) {
  Slab<uint32_t> slab;
  ASSERT_TRUE(slab.reserve(100'000));
  ASSERT_TRUE(slab.commit(0, 10));
  EXPECT_DEATH(slab[50'000] = 1, "");
}

TEST(Growth, CommitsInStepsThatGrowAndEnd) {
  Growth growth(100, 1'000'000);
  EXPECT_FALSE(growth.covers(100));
  size_t steps = 0;
  size_t last = 0;
  for (size_t index = 100; index < 1'000'000; index = growth.committed()) {
    const size_t end = growth.next(index);
    ASSERT_GT(end, index);
    ASSERT_LE(end, 1'000'000U);
    const size_t step = end - growth.committed();
    ASSERT_TRUE(end == 1'000'000 || (step >= 64 && step >= last && step <= 1U << 17U));
    last = step;
    growth.advance(end);
    ASSERT_TRUE(growth.covers(index));
    ++steps;
  }
  EXPECT_LT(steps, 40U) << "large steps: few system calls";
  EXPECT_FALSE(growth.covers(1'000'000));
}

TEST(Growth, JumpsToAnIndexFarAhead) {
  Growth growth(0, 1'000'000);
  EXPECT_EQ(growth.next(0), 64U);
  EXPECT_EQ(growth.next(500'000), 500'001U);
  EXPECT_EQ(growth.next(999'999), 1'000'000U);
  EXPECT_EQ(growth.committed(), 0U) << "asking changes nothing";
}

}  // namespace
}  // namespace stemma::base
