#include "capi/slot_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace stemma::capi {
namespace {

struct Table : SlotTable<int> {
  using SlotTable::SlotTable;
  ~Table() { free_memory(); }
  uint64_t put(int value) {
    return SlotTable::put([&](int& to) { to = value; });
  }
};

Found look(Table& table, uint64_t number) { return Table::Use(table, number).found(); }
int take(Table& table, uint64_t number) {
  Table::Use use(table, number);
  const int value = *use;
  use.drop();
  return value;
}

TEST(SlotTable, NumbersLeadToWhatWasPut) {
  Table table;
  const uint64_t a = table.put(7), b = table.put(8);
  EXPECT_EQ(*Table::Use(table, a), 7);
  EXPECT_EQ(*Table::Use(table, b), 8);
  *Table::Use(table, a) = 9;
  EXPECT_EQ(take(table, a), 9);
  EXPECT_EQ(*Table::Use(table, b), 8);
}

TEST(SlotTable, NumberOfSomethingGoneIsGoneForGood) {
  Table table;
  std::set<uint64_t> seen;
  uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t number = table.put(i);
    EXPECT_TRUE(seen.insert(number).second) << "given twice";
    EXPECT_EQ(take(table, number), i);
    EXPECT_EQ(look(table, number), Found::gone);
    if (last != 0) {
      EXPECT_EQ(look(table, last), Found::gone);
    }
    last = number;
  }
}

TEST(SlotTable, NumbersNeverGivenAreKnownAsSuch) {
  Table table;
  EXPECT_EQ(look(table, 0), Found::never);
  EXPECT_EQ(look(table, 1), Found::never);
  const uint64_t number = table.put(1);
  EXPECT_EQ(look(table, 0), Found::never);
  EXPECT_EQ(look(table, number + (uint64_t{1} << 32)), Found::never);
  EXPECT_EQ(look(table, ~uint64_t{0}), Found::never);
  for (uint32_t bit = 0; bit < 64; ++bit) {
    EXPECT_NE(look(table, number ^ uint64_t{1} << bit), Found::yes) << bit;
  }
}

TEST(SlotTable, SecondUseAtTheSameTimeFindsItBusy) {
  Table table;
  const uint64_t number = table.put(1);
  {
    const Table::Use first(table, number);
    EXPECT_EQ(first.found(), Found::yes);
    EXPECT_EQ(look(table, number), Found::busy);
  }
  EXPECT_EQ(look(table, number), Found::yes);
}

TEST(SlotTable, GrowsWithoutMovingAnything) {
  Table table;
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 5000; ++i) numbers.push_back(table.put(i));
  EXPECT_EQ(std::set<uint64_t>(numbers.begin(), numbers.end()).size(), numbers.size());
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(take(table, numbers[i]), i);
}

TEST(SlotTable, SlotWithoutGenerationsLeftIsNotUsedAgain) {
  Table table(0xFFFF'FFFEU);
  const uint64_t number = table.put(1);
  EXPECT_EQ(number >> 32, 0xFFFF'FFFFU);
  EXPECT_EQ(take(table, number), 1);
  for (int i = 0; i < 300; ++i) {
    EXPECT_NE(static_cast<uint32_t>(table.put(i)), static_cast<uint32_t>(number));
  }
  EXPECT_EQ(look(table, number), Found::gone);
}

TEST(SlotTable, ThreadsNeverMeetInOneSlot) {
  Table table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&table, t] {
      std::vector<uint64_t> mine;
      for (int i = 0; i < 2000; ++i) {
        mine.push_back(table.put(t * 10'000 + i));
        if (mine.size() > 3) {
          const uint64_t oldest = mine.front();
          mine.erase(mine.begin());
          EXPECT_EQ(take(table, oldest), t * 10'000 + i - 3);
          EXPECT_EQ(look(table, oldest), Found::gone);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stemma::capi
