#include "retain/ordered_cells.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "retain/ghosts.h"

namespace stemma::retain {
namespace {

using Entry = std::tuple<uint16_t, uint64_t, CellIndex>;

TEST(OrderedCells, AreWhatSetsOfTuplesAre) {
  constexpr uint32_t kCells = 200;
  constexpr uint32_t kSets = 3;
  OrderedCells cells;
  ASSERT_TRUE(cells.create(kCells, kSets));
  ASSERT_TRUE(cells.commit(kCells));
  std::vector<std::set<Entry>> plain(kSets);
  std::map<CellIndex, std::pair<uint32_t, Entry>> where;
  std::mt19937 random(5);
  for (int step = 0; step < 30'000; ++step) {
    const CellIndex cell = random() % kCells;
    ASSERT_EQ(cells.contains(cell), where.contains(cell));
    if (where.contains(cell)) {
      const auto [set, entry] = where[cell];
      ASSERT_EQ(cells.set_of(cell), set);
      ASSERT_EQ(cells.rank(cell), std::get<0>(entry));
      ASSERT_EQ(cells.key(cell), std::get<1>(entry));
      cells.erase(cell);
      plain[set].erase(entry);
      where.erase(cell);
    } else {
      const uint32_t set = random() % kSets;
      const Entry entry{static_cast<uint16_t>(random() % 4), random() % 50, cell};
      cells.insert(set, cell, std::get<0>(entry), std::get<1>(entry));
      plain[set].insert(entry);
      where[cell] = {set, entry};
    }
    for (uint32_t set = 0; set < kSets; ++set) {
      ASSERT_EQ(cells.first(set), plain[set].empty() ? kNoCell : std::get<2>(*plain[set].begin()));
      const auto rank = static_cast<uint16_t>(random() % 4);
      const uint64_t key = random() % 50;
      const auto from = plain[set].lower_bound({rank, key, 0});
      ASSERT_EQ(cells.first_from(set, rank, key),
                from == plain[set].end() ? kNoCell : std::get<2>(*from));
    }
    if (step % 1000 == 0) {
      ASSERT_EQ(cells.check_invariants(), where.size());
    }
  }
  const OrderedCells twin(cells);
  cells.clear();
  EXPECT_EQ(cells.check_invariants(), 0U);
  EXPECT_EQ(twin.check_invariants(), where.size()) << "a copy is its own";
}

TEST(Ghosts, AreThoseOfTheLastEvictionsThatDidNotComeBack) {
  constexpr uint32_t kMost = 40;
  Ghosts ghosts;
  ASSERT_TRUE(ghosts.create(kMost));
  struct Plain {
    uint64_t when;
    Ghosts::Kind kind;
    uint32_t note;
  };
  std::map<uint32_t, Plain> plain;
  uint64_t added = 0;
  std::mt19937 random(6);
  for (int step = 0; step < 50'000; ++step) {
    const uint32_t print = random() % 120 * 0x0101'0101U % 0x3FFF'FFFFU;
    if (random() % 3 == 0) {
      const Ghosts::Found found = ghosts.take(print);
      const auto it = plain.find(print);
      ASSERT_EQ(found.found, it != plain.end()) << step;
      if (it == plain.end()) continue;
      ASSERT_EQ(found.kind, it->second.kind);
      ASSERT_EQ(found.note, it->second.note);
      plain.erase(it);
    } else {
      const auto kind = random() % 2 == 0 ? Ghosts::Kind::first : Ghosts::Kind::second;
      const auto note = static_cast<uint32_t>(random());
      ghosts.add(print, kind, note);
      plain[print] = {++added, kind, note};
      std::erase_if(plain, [&](const auto& one) { return one.second.when + kMost <= added; });
    }
    uint32_t first = 0;
    for (const auto& [id, one] : plain) first += one.kind == Ghosts::Kind::first ? 1U : 0U;
    ASSERT_EQ(ghosts.count(Ghosts::Kind::first), first);
    ASSERT_EQ(ghosts.count(Ghosts::Kind::second), plain.size() - first);
  }
  ghosts.clear();
  EXPECT_EQ(ghosts.count(Ghosts::Kind::first) + ghosts.count(Ghosts::Kind::second), 0U);
}

}  // namespace
}  // namespace stemma::retain
