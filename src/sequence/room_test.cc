#include "sequence/room.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace stemma::sequence {
namespace {

constexpr SequenceId kOne{0}, kTwo{1}, kThree{2};

EngineTraits traits(uint32_t sequences, uint32_t context_tokens, bool unified = true) {
  EngineTraits traits;
  traits.sequences = sequences;
  traits.context_tokens = context_tokens;
  traits.unified = unified;
  return traits;
}

// A room whose calls prepare their own memory.
struct Fixture : Room {
  explicit Fixture(const EngineTraits& traits) { create(traits); }
  void set(SequenceId sequence, uint32_t n) {
    prepare(sequence, sequence);
    set_length(sequence, n);
  }
  void copy(SequenceId from, SequenceId to, uint32_t n) {
    prepare(to, from);
    share(from, to, n);
  }
};

TEST(Room, PositionsAreTakenAndGivenBack) {
  Fixture room(traits(2, 100));
  EXPECT_EQ(room.free_for(kOne), 100U);
  room.set(kOne, 30);
  room.set(kTwo, 20);
  EXPECT_EQ(room.used(), 50U);
  EXPECT_EQ(room.free_for(kOne), 50U);
  room.set(kOne, 10);
  EXPECT_EQ(room.used(), 30U);
  room.set(kOne, 0);
  room.set(kTwo, 0);
  EXPECT_EQ(room.used(), 0U);
  EXPECT_EQ(room.extents(), 0U);
}

TEST(Room, SharedPositionsCountOnceUntilTheLastLetsGo) {
  Fixture room(traits(3, 100));
  room.set(kOne, 40);
  room.copy(kOne, kTwo, 30);
  EXPECT_EQ(room.used(), 40U);
  EXPECT_EQ(room.length(kTwo), 30U);
  room.set(kTwo, 50);  // 20 are its own.
  EXPECT_EQ(room.used(), 60U);
  room.copy(kTwo, kThree, 45);
  EXPECT_EQ(room.used(), 60U);
  room.set(kOne, 0);  // 10 were only A's.
  EXPECT_EQ(room.used(), 50U);
  room.set(kTwo, 10);  // C still has 45.
  EXPECT_EQ(room.used(), 45U);
  room.set(kThree, 0);
  EXPECT_EQ(room.used(), 10U);
  room.check_invariants();
}

TEST(Room, WhatGoesOnBehindSomethingSharedIsItsOwn) {
  Fixture room(traits(2, 100));
  room.set(kOne, 10);
  room.copy(kOne, kTwo, 10);
  room.set(kOne, 20);
  room.set(kTwo, 25);
  EXPECT_EQ(room.used(), 10U + 10U + 15U);
  room.set(kOne, 0);
  EXPECT_EQ(room.used(), 25U);
}

TEST(Room, MoreThanTheContextHasLeavesNothingFree) {
  Fixture room(traits(2, 100));
  room.set(kOne, 120);
  EXPECT_EQ(room.free_for(kOne), 0U);
  EXPECT_EQ(room.free_for(kTwo), 0U);
}

TEST(Room, SplitContextsAreCountedOneByOne) {
  Fixture room(traits(2, 100, false));
  room.set(kOne, 90);
  room.set(kTwo, 30);
  EXPECT_EQ(room.used(), 120U);
  EXPECT_EQ(room.free_for(kOne), 10U);
  EXPECT_EQ(room.free_for(kTwo), 70U);
  // Cells that others release do not help.
  EXPECT_EQ(room.free_if(kOne, 90, {0, 1}), 10U);
  EXPECT_EQ(room.free_if(kOne, 40, {0, 0}), 60U);
  EXPECT_EQ(room.free_if(kOne, 0, {0, 0}), 100U);
}

TEST(Room, ARowOfCopiesLeavesNoTrail) {
  Fixture room(traits(2, 100'000));
  room.set(kOne, 10);
  SequenceId from = kOne, to = kTwo;
  for (uint32_t turn = 1; turn < 1000; ++turn) {
    room.copy(from, to, room.length(from));
    room.set(to, room.length(to) + 10);
    room.set(from, 0);
    std::swap(from, to);
    ASSERT_LE(room.extents(), 3U);
  }
  EXPECT_EQ(room.length(from), 10'000U);
  EXPECT_EQ(room.used(), 10'000U);
  room.check_invariants();
}

// ---- Against sets of cells ----------------------------------------------------------------------

// Every sequence is a row of cells; every position ever computed is a cell.
struct Cells {
  std::vector<std::vector<uint64_t>> sequences;
  uint64_t made = 0;

  void set(uint32_t s, uint32_t n) {
    std::vector<uint64_t>& cells = sequences[s];
    if (n < cells.size()) cells.resize(n);
    while (cells.size() < n) cells.push_back(made++);
  }
  uint64_t used_if(uint32_t s, uint32_t keep, const std::vector<uint8_t>& gone) const {
    std::set<uint64_t> cells;
    for (uint32_t i = 0; i < sequences.size(); ++i) {
      if (i != s && gone[i] != 0) continue;
      const size_t n = i == s ? std::min<size_t>(keep, sequences[i].size()) : sequences[i].size();
      cells.insert(sequences[i].begin(), sequences[i].begin() + static_cast<ptrdiff_t>(n));
    }
    return cells.size();
  }
};

void walk(uint32_t seed, uint32_t sequences, bool unified) {
  std::mt19937 random(seed);
  const auto dice = [&](uint32_t sides) { return static_cast<uint32_t>(random() % sides); };
  constexpr uint32_t kContext = 300;
  Fixture room(traits(sequences, kContext, unified));
  Cells cells;
  cells.sequences.resize(sequences);
  std::vector<uint8_t> gone(sequences);
  for (uint32_t step = 0; step < 3000; ++step) {
    const uint32_t s = dice(sequences);
    const uint32_t from = dice(sequences);
    const auto length = static_cast<uint32_t>(cells.sequences[s].size());
    const auto source = static_cast<uint32_t>(cells.sequences[from].size());
    const uint32_t what = dice(5);
    if (what < 2) {
      const uint32_t n = length + dice(20);
      room.set(SequenceId{s}, n);
      cells.set(s, n);
    } else if (what == 2) {
      const uint32_t n = dice(4) == 0 ? 0 : dice(length + 1);
      room.set_length(SequenceId{s}, n);  // Shortening needs no memory.
      cells.set(s, n);
    } else if (what == 3 && from != s && source != 0 && unified) {
      const uint32_t n = 1 + dice(source);
      room.set_length(SequenceId{s}, 0);
      room.copy(SequenceId{from}, SequenceId{s}, n);
      cells.sequences[s].assign(cells.sequences[from].begin(),
                                cells.sequences[from].begin() + static_cast<ptrdiff_t>(n));
    }
    for (uint32_t i = 0; i < sequences; ++i) {
      ASSERT_EQ(room.length(SequenceId{i}), cells.sequences[i].size());
      gone[i] = static_cast<uint8_t>(dice(2));
    }
    const std::vector<uint8_t> nobody(sequences);
    ASSERT_EQ(room.used(), cells.used_if(s, ~0U, nobody)) << "seed " << seed << ", step " << step;
    const uint32_t keep = dice(60);
    const uint64_t taken = unified ? cells.used_if(s, ~0U, nobody) : cells.sequences[s].size();
    ASSERT_EQ(room.free_for(SequenceId{s}), kContext - std::min<uint64_t>(kContext, taken));
    const uint64_t then = unified ? cells.used_if(s, keep, gone)
                                  : std::min<uint64_t>(keep, cells.sequences[s].size());
    ASSERT_EQ(room.free_if(SequenceId{s}, keep, gone),
              kContext - std::min<uint64_t>(kContext, then))
        << "seed " << seed << ", step " << step;
    room.check_invariants();
  }
}

TEST(Room, RandomSequencesAgreeWithSetsOfCells) {
  for (uint32_t seed = 1; seed <= 20; ++seed) walk(seed, 1 + seed % 6, true);
}

TEST(Room, RandomSplitSequencesAgreeWithSetsOfCells) {
  for (uint32_t seed = 1; seed <= 5; ++seed) walk(seed, 1 + seed % 4, false);
}

}  // namespace
}  // namespace stemma::sequence
