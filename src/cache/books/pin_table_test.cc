#include "cache/books/pin_table.h"

#include <gtest/gtest.h>

namespace stemma::cache {
namespace {

TEST(PinTable, APinIsFoundByItsNumberUntilItIsRemoved) {
  PinTable pins;
  const PinId id = pins.add({5, 3, {}}, kNever);
  const uint32_t slot = pins.find(id);
  ASSERT_NE(slot, PinTable::kNone);
  EXPECT_EQ(pins.pin(slot).cell, 5u);
  EXPECT_EQ(pins.depth_sum(), 3u);
  const PinTable::Pin removed = pins.remove(slot);
  EXPECT_EQ(removed.depth_cells, 3u);
  EXPECT_EQ(pins.find(id), PinTable::kNone);
  EXPECT_EQ(pins.depth_sum(), 0u);
  EXPECT_TRUE(pins.empty());
}

TEST(PinTable, ANumberNeverComesBackNotEvenInAnotherTable) {
  PinTable pins;
  PinTable others;
  const PinId first = pins.add({5, 1, {}}, kNever);
  pins.remove(pins.find(first));
  const PinId second = pins.add({5, 1, {}}, kNever);  // The same slot.
  const PinId other = others.add({5, 1, {}}, kNever);
  EXPECT_NE(first, second);
  EXPECT_EQ(pins.find(first), PinTable::kNone);
  EXPECT_EQ(pins.find(other), PinTable::kNone);
  EXPECT_EQ(others.find(second), PinTable::kNone);
}

TEST(PinTable, APinWithBlocksGivesThemBack) {
  PinTable pins;
  const PinId id = pins.add({5, 1, {{.group = 1, .page = 8}}}, kNever);
  const PinTable::Pin pin = pins.remove(pins.find(id));
  EXPECT_EQ(pin.blocks, (std::vector<LooseBlock>{{.group = 1, .page = 8}}));
}

TEST(PinTable, PinsOfOneCellAreFoundInAnyOrderOfRemoval) {
  for (int keep = 0; keep < 3; ++keep) {
    PinTable pins;
    PinId ids[3];
    for (PinId& id : ids) id = pins.add({5, 1, {}}, kNever);
    pins.add({6, 1, {}}, kNever);
    for (int i = 0; i < 3; ++i) {
      if (i != keep) pins.remove(pins.find(ids[i]));
    }
    EXPECT_EQ(pins.at(5), pins.find(ids[keep]));
    pins.remove(pins.at(5));
    EXPECT_EQ(pins.at(5), PinTable::kNone);
    EXPECT_NE(pins.at(6), PinTable::kNone);
  }
}

TEST(PinTable, DeadlinesPassInOrderAndOnlyOfPinsThatLive) {
  PinTable pins;
  const PinId late = pins.add({1, 1, {}}, 300);
  const PinId early = pins.add({2, 1, {}}, 100);
  const PinId ended = pins.add({3, 1, {}}, 50);
  pins.add({4, 1, {}}, kNever);
  pins.remove(pins.find(ended));
  EXPECT_FALSE(pins.is_due(49));
  EXPECT_EQ(pins.take_due(99), PinTable::kNone);
  EXPECT_EQ(pins.take_due(300), pins.find(early));
  EXPECT_EQ(pins.take_due(300), pins.find(late));
  EXPECT_EQ(pins.take_due(~uint64_t{0}), PinTable::kNone);
}

TEST(PinTable, DeadlinesOfEndedPinsDoNotPileUp) {
  PinTable pins;
  const PinId kept = pins.add({1, 1, {}}, 900);
  for (int i = 0; i < 10'000; ++i) pins.remove(pins.find(pins.add({2, 1, {}}, 1'000 + i)));
  EXPECT_LT(pins.bytes(), 20'000u);
  EXPECT_EQ(pins.take_due(900), pins.find(kept));
}

}  // namespace
}  // namespace stemma::cache
