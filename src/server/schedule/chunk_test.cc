#include "server/schedule/chunk.h"

#include <gtest/gtest.h>

namespace stemma::server {
namespace {

TEST(Chunk, GoesUpToTheStopOrIsFull) {
  EXPECT_EQ(end_of_chunk(100, 300, 512), 300U);
  EXPECT_EQ(end_of_chunk(100, 612, 512), 612U);
  EXPECT_EQ(end_of_chunk(100, 900, 512), 612U);
  EXPECT_EQ(end_of_chunk(100, 101, 512), 101U);
}

TEST(Chunk, LeavesNoFewTokensBeforeAStop) {
  EXPECT_EQ(end_of_chunk(100, 620, 512), 556U) << "64 follow, not 8";
  EXPECT_EQ(end_of_chunk(100, 675, 512), 611U);
  EXPECT_EQ(end_of_chunk(100, 676, 512), 612U);
}

TEST(Chunk, IsNotMadeShortItself) {
  EXPECT_EQ(end_of_chunk(0, 70, 64), 64U);
  EXPECT_EQ(end_of_chunk(0, 10, 8), 8U);
  EXPECT_EQ(end_of_chunk(0, 101, 100), 100U) << "37 would be left of it";
  EXPECT_EQ(end_of_chunk(0, 128, 127), 64U);
}

}  // namespace
}  // namespace stemma::server
