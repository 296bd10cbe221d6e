#include "cache/books/scope_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace stemma::cache {
namespace {

// Scopes by number: all digests differ, and some begin with the same eight bytes.
Scope scope(uint64_t number) {
  std::array<uint8_t, 32> digest{};
  const uint64_t head = number / 2 * 0x9E37'79B9'7F4A'7C15U;
  std::memcpy(digest.data(), &head, sizeof head);
  std::memcpy(digest.data() + 8, &number, sizeof number);
  return Scope::from_digest(digest);
}
ScopeTable::Root root(uint64_t number, CellIndex cell) {
  return {scope(number), cell, TenantId{static_cast<uint32_t>(number % 7)}, 0, false};
}

TEST(ScopeTable, FindsWhatWasAddedByScopeAndByCell) {
  ScopeTable table;
  EXPECT_EQ(table.find(scope(1)), nullptr);
  EXPECT_EQ(table.guess(scope(1)), kNoCell);
  table.add(root(1, 50));
  ASSERT_NE(table.find(scope(1)), nullptr);
  EXPECT_EQ(table.find(scope(1))->cell, 50U);
  EXPECT_EQ(table.find(scope(1))->tenant, TenantId{1});
  EXPECT_EQ(table.find(CellIndex{50})->scope, scope(1));
  EXPECT_EQ(table.find(CellIndex{51}), nullptr);
  EXPECT_EQ(table.guess(scope(1)), 50U);
  EXPECT_EQ(table.size(), 1U);
}

TEST(ScopeTable, DigestsThatBeginAlikeAreToldApart) {
  ScopeTable table;
  table.add(root(10, 1));
  EXPECT_EQ(table.find(scope(11)), nullptr) << "the same first eight bytes, another scope";
  table.add(root(11, 2));
  EXPECT_EQ(table.find(scope(10))->cell, 1U);
  EXPECT_EQ(table.find(scope(11))->cell, 2U);
}

TEST(ScopeTable, DigestsThatLookLikeMarksAreFine) {
  ScopeTable table;
  std::array<uint8_t, 32> digest{};
  for (uint8_t first = 0; first < 4; ++first) {
    digest[0] = first;  // Heads 0, 1, 2, 3.
    table.add({Scope::from_digest(digest), first + 10U, kNoTenant, 0, false});
  }
  for (uint8_t first = 0; first < 4; ++first) {
    digest[0] = first;
    EXPECT_EQ(table.find(Scope::from_digest(digest))->cell, first + 10U);
  }
}

TEST(ScopeTable, HiddenScopesAreKnownByTheirCellOnly) {
  ScopeTable table;
  table.add(root(1, 5));
  table.hide(5);
  EXPECT_EQ(table.find(scope(1)), nullptr);
  EXPECT_EQ(table.guess(scope(1)), kNoCell);
  ASSERT_NE(table.find(CellIndex{5}), nullptr);
  EXPECT_TRUE(table.find(CellIndex{5})->hidden);
  EXPECT_EQ(table.size(), 0U);
  table.add(root(1, 6));  // The scope may come back while the old root is still leased.
  EXPECT_EQ(table.find(scope(1))->cell, 6U);
  table.remove(5);
  EXPECT_EQ(table.find(CellIndex{5}), nullptr);
  EXPECT_EQ(table.find(scope(1))->cell, 6U);
  table.remove(6);
  EXPECT_EQ(table.find(scope(1)), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

TEST(ScopeTable, HundredThousandScopesAreFoundAndCostLittle) {
  ScopeTable table;
  constexpr uint32_t kScopes = 100'000;
  for (uint32_t i = 0; i < kScopes; ++i) table.add(root(i, i + 1));
  for (uint32_t i = 0; i < kScopes; ++i) {
    ASSERT_EQ(table.find(scope(i))->cell, i + 1);
    ASSERT_EQ(table.find(CellIndex{i + 1})->scope, scope(i));
  }
  for (uint32_t i = kScopes; i < 2 * kScopes; ++i) ASSERT_EQ(table.guess(scope(i)), kNoCell);
  EXPECT_EQ(table.size(), kScopes);
  EXPECT_LE(table.bytes(), 300 * uint64_t{kScopes});
}

TEST(ScopeTable, AgreesWithAPlainMapOverChurn) {
  ScopeTable table;
  std::unordered_map<uint64_t, CellIndex> plain;
  std::vector<CellIndex> hidden;
  std::vector<CellIndex> free_cells;
  for (CellIndex cell = 0; cell < 300; ++cell) free_cells.push_back(cell);
  std::mt19937_64 random(5);
  for (int step = 0; step < 100'000; ++step) {
    const uint64_t number = random() % 400;
    const auto it = plain.find(number);
    ASSERT_EQ(table.find(scope(number)) != nullptr, it != plain.end());
    if (it == plain.end()) {
      ASSERT_EQ(table.find(scope(number)), nullptr);
      if (free_cells.empty()) continue;
      table.add(root(number, free_cells.back()));
      plain[number] = free_cells.back();
      free_cells.pop_back();
    } else if (random() % 3 == 0) {
      table.hide(it->second);
      hidden.push_back(it->second);
      plain.erase(it);
    } else {
      ASSERT_EQ(table.find(scope(number))->cell, it->second);
      ASSERT_EQ(table.find(it->second)->scope, scope(number));
      table.remove(it->second);
      free_cells.push_back(it->second);
      plain.erase(it);
    }
    if (!hidden.empty() && random() % 4 == 0) {
      table.remove(hidden.back());
      free_cells.push_back(hidden.back());
      hidden.pop_back();
    }
    ASSERT_EQ(table.size(), plain.size());
  }
}

TEST(ScopeTable, ChurnDoesNotGrowMemoryWithoutBound) {
  ScopeTable table;
  uint64_t number = 0;
  std::vector<CellIndex> cells;
  for (CellIndex cell = 0; cell < 1000; ++cell) {
    table.add(root(number++, cell));
    cells.push_back(cell);
  }
  uint64_t warm = 0;
  for (int round = 0; round < 300; ++round) {
    for (CellIndex cell : cells) {  // Always a scope never seen before.
      if (cell % 2 == 0) table.hide(cell);
      table.remove(cell);
      table.add(root(number++, cell));
    }
    if (round == 10) warm = table.bytes();
  }
  EXPECT_EQ(table.bytes(), warm);
  EXPECT_EQ(table.size(), 1000U);
  EXPECT_EQ(table.roots().size(), 1000U) << "places of removed roots are used again";
}

TEST(ScopeTable, GuessesBesideAWriterNameOnlyCellsThatWereReal) {
  ScopeTable table;
  constexpr uint32_t kCells = 64;
  for (CellIndex cell = 0; cell < kCells; ++cell) table.add(root(cell, cell));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> found{0};
  std::vector<std::jthread> readers;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      while (!stop.load(std::memory_order_relaxed)) {
        const CellIndex cell = table.guess(scope(random() % 2000));
        if (cell != kNoCell && cell >= 4 * kCells) ++wrong;
        if (cell != kNoCell) ++found;
      }
    });
  }
  std::mt19937_64 random(9);
  std::vector<CellIndex> live;
  for (CellIndex cell = 0; cell < kCells; ++cell) live.push_back(cell);
  CellIndex next = kCells;
  for (int step = 0; step < 100'000; ++step) {
    if (live.size() < 2 * kCells && random() % 2 == 0) {
      uint64_t number = random() % 2000;
      while (table.find(scope(number)) != nullptr) number = (number + 1) % 2000;
      const CellIndex cell = next++ % (4 * kCells);
      if (table.find(cell) != nullptr) continue;
      table.add(root(number, cell));
      live.push_back(cell);
    } else if (!live.empty()) {
      const size_t at = random() % live.size();
      table.remove(live[at]);
      live[at] = live.back();
      live.pop_back();
    }
  }
  while (found.load() == 0 && !live.empty()) std::this_thread::yield();
  stop = true;
  readers.clear();
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace stemma::cache
