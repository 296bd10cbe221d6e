#include "tier/followers.h"

#include <gtest/gtest.h>

namespace stemma::tier {
namespace {

using Goes = Followers::Goes;

// The entry of the prefix with this link; it continues the prefix with the link `parent`.
struct Shown {
  uint64_t link, parent;
  uint32_t begin, end;
  EntryKind kind = EntryKind::segment;

  EntryKey key() const {
    EntryKey key;
    for (size_t i = 0; i < 8; ++i) key.chain.bytes[8 + i] = static_cast<uint8_t>(link >> (8 * i));
    key.kind = kind;
    return key;
  }
  EntryInfo info() const {
    return {.begin = begin, .end = end, .layout = 1, .bytes = 1, .words = 0, .parent = parent};
  }
};

// What happens to each entry if all of them exist. The prefix ends at 70; 5 is the link of its
// first 64.
std::vector<Goes> ask(const std::vector<Shown>& all) {
  const Purge what{.keep = 70, .follows = 5};
  Followers followers(what);
  for (const Shown& one : all) followers.show(one.key(), one.info());
  std::vector<Goes> goes;
  for (const Shown& one : all) goes.push_back(followers.ask(one.key(), one.info()));
  return goes;
}

TEST(Followers, WhatReachesThePrefixGoesAndWhatReachesAnotherStays) {
  EXPECT_EQ(ask({{5, 1, 0, 64},
                 {6, 5, 64, 128},
                 {7, 6, 128, 192},
                 {16, 15, 64, 128},
                 {17, 16, 128, 192},
                 {8, 5, 64, 69}}),
            (std::vector{Goes::no, Goes::yes, Goes::yes, Goes::no, Goes::no, Goes::no}));
}

TEST(Followers, ACheckpointFollowsWhatItsSegmentsFollow) {
  EXPECT_EQ(ask({{6, 5, 0, 128, EntryKind::checkpoint},
                 {16, 15, 0, 128, EntryKind::checkpoint},
                 {26, 25, 0, 128, EntryKind::checkpoint},
                 {16, 15, 64, 128}}),
            (std::vector{Goes::yes, Goes::no, Goes::unsure, Goes::no}))
      << "of the third nobody knows where its parent ends";
}

TEST(Followers, WhereTheWayBreaksOffNobodyCanTell) {
  EXPECT_EQ(ask({{7, 6, 128, 192}, {8, 7, 192, 256}, {30, 0, 128, 192}, {31, 30, 192, 256}}),
            (std::vector{Goes::unsure, Goes::unsure, Goes::unsure, Goes::unsure}));
}

// Blocks of a paged engine do not name their parents, wherever they begin.
TEST(Followers, WhatNamesNoParentGoesIfItIsDeepEnough) {
  EXPECT_EQ(ask({{6, 0, 64, 128}, {7, 0, 0, 64}, {8, 0, 0, 128}, {16, 15, 64, 128}}),
            (std::vector{Goes::unsure, Goes::no, Goes::unsure, Goes::no}));
}

// Anyone who can write to the store can make such entries.
TEST(Followers, ACircleEnds) {
  EXPECT_EQ(ask({{40, 41, 128, 192}, {41, 40, 192, 256}, {42, 42, 128, 192}}),
            (std::vector{Goes::unsure, Goes::unsure, Goes::unsure}));
}

}  // namespace
}  // namespace stemma::tier
