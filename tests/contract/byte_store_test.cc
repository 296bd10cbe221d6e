// What every ByteStore promises. A new store joins with one line at the end of this file.
#include "stemma/byte_store.h"
#include "stemma/byte_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace stemma::test {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint64_t kSlotBytes = 10'000;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<ByteStore>()> make;  // kSlots slots of kSlotBytes or more.
  uint64_t slot_bytes;                               // 0: of any size.
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

using Bytes = std::vector<uint8_t>;

class ByteStoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    store = GetParam().make();
    ASSERT_NE(store, nullptr);
  }
  static Bytes contents(uint64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    return bytes;
  }
  void save(uint32_t slot, const Bytes& bytes) {
    Result<std::span<uint8_t>> room = store->open(slot, bytes.size());
    ASSERT_TRUE(room) << room.error().to_string();
    ASSERT_EQ(room->size(), bytes.size());
    std::copy(bytes.begin(), bytes.end(), room->begin());
    ASSERT_TRUE(store->seal(slot, bytes.size()));
  }
  void expect_saved(uint32_t slot, const Bytes& bytes) {
    EXPECT_EQ(store->size(slot), bytes.size());
    const Result<std::span<const uint8_t>> read = store->read(slot);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_TRUE(std::ranges::equal(*read, bytes)) << "slot " << slot;
  }
  void expect_nothing(uint32_t slot) {
    EXPECT_EQ(store->size(slot), 0U);
    const auto read = store->read(slot);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), Errc::stale);
  }
  template <class Outcome>
  static void expect_error(const Outcome& outcome, Errc code) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), code) << outcome.error().to_string();
  }

  std::unique_ptr<ByteStore> store;
};

TEST_P(ByteStoreContract, NewStoreHasNothing) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) expect_nothing(slot);
}

TEST_P(ByteStoreContract, WhatWasSealedIsRead) {
  for (uint64_t size : {uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{4097}, kSlotBytes}) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) save(slot, contents(size, slot));
    for (uint32_t slot = 0; slot < kSlots; ++slot) expect_saved(slot, contents(size, slot));
  }
}

TEST_P(ByteStoreContract, ReadingTwiceGivesTheSame) {
  save(3, contents(500, 1));
  expect_saved(3, contents(500, 1));
  expect_saved(3, contents(500, 1));
}

TEST_P(ByteStoreContract, RoomIsZeroedAlsoWhereSomethingWas) {
  save(2, Bytes(kSlotBytes, 0xEE));
  const auto room = store->open(2, kSlotBytes);
  ASSERT_TRUE(room);
  EXPECT_TRUE(std::ranges::all_of(*room, [](uint8_t byte) { return byte == 0; }));
}

TEST_P(ByteStoreContract, FewerBytesMayBeSealedThanWereOpened) {
  const Bytes bytes = contents(900, 2);
  const auto room = store->open(0, 1000);
  ASSERT_TRUE(room);
  std::copy(bytes.begin(), bytes.end(), room->begin());
  ASSERT_TRUE(store->seal(0, 900));
  expect_saved(0, bytes);
  (*room)[950] = 1;  // Beyond what counts.
  expect_saved(0, bytes);
}

TEST_P(ByteStoreContract, NoBytesAreSomethingSealed) {
  save(1, {});
  EXPECT_EQ(store->size(1), 0U);
  const auto read = store->read(1);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->empty());
}

TEST_P(ByteStoreContract, OpeningForgetsWhatWasThere) {
  save(4, contents(100, 3));
  ASSERT_TRUE(store->open(4, 50));
  expect_nothing(4);
  ASSERT_TRUE(store->open(4, 60));  // Again, without sealing.
  expect_nothing(4);
  ASSERT_TRUE(store->seal(4, 60));
  expect_saved(4, Bytes(60, 0));
}

TEST_P(ByteStoreContract, DroppingForgetsAndIsHarmlessOtherwise) {
  save(5, contents(100, 3));
  save(6, contents(100, 4));
  store->drop(5);
  expect_nothing(5);
  store->drop(5);
  store->drop(0);
  store->drop(kSlots);
  store->drop(~0U);
  expect_saved(6, contents(100, 4));
  ASSERT_TRUE(store->open(5, 10));
  store->drop(5);
  expect_error(store->seal(5, 10), Errc::wrong_state);
}

TEST_P(ByteStoreContract, SealingWhatIsNotBeingWrittenIsRefused) {
  expect_error(store->seal(0, 0), Errc::wrong_state);
  save(0, contents(10, 1));
  expect_error(store->seal(0, 5), Errc::wrong_state);
  expect_saved(0, contents(10, 1));
  ASSERT_FALSE(store->seal(kSlots, 0));
}

TEST_P(ByteStoreContract, SealingMoreThanWasOpenedIsRefusedAndChangesNothing) {
  const auto room = store->open(0, 10);
  ASSERT_TRUE(room);
  std::ranges::fill(*room, 9);
  expect_error(store->seal(0, 11), Errc::out_of_range);
  ASSERT_TRUE(store->seal(0, 10));
  expect_saved(0, Bytes(10, 9));
}

TEST_P(ByteStoreContract, SlotsThereAreNotAreRefused) {
  for (uint32_t slot : {kSlots, kSlots + 1, ~0U}) {
    expect_error(store->open(slot, 10), Errc::out_of_range);
    expect_error(store->read(slot), Errc::stale);
    EXPECT_EQ(store->size(slot), 0U);
  }
}

TEST_P(ByteStoreContract, MoreThanASlotCanHaveIsRefusedAndLeavesItEmpty) {
  save(1, contents(100, 1));
  save(2, contents(100, 2));
  const uint64_t most = GetParam().slot_bytes != 0 ? GetParam().slot_bytes : uint64_t{1} << 60U;
  expect_error(store->open(1, most + 1), Errc::out_of_range);
  expect_nothing(1);
  expect_error(store->open(1, ~uint64_t{0}), Errc::out_of_range);
  expect_saved(2, contents(100, 2));
}

TEST_P(ByteStoreContract, DamageIsNoticedWhereverItIs) {
  const Bytes bytes = contents(1000, 7);
  const auto room = store->open(3, bytes.size());
  ASSERT_TRUE(room);
  std::copy(bytes.begin(), bytes.end(), room->begin());
  ASSERT_TRUE(store->seal(3, bytes.size()));
  for (size_t at = 0; at < bytes.size(); at += 7) {
    (*room)[at] ^= static_cast<uint8_t>(1U << at % 8);
    expect_error(store->read(3), Errc::corrupt);
    (*room)[at] = bytes[at];
  }
  expect_saved(3, bytes);
}

TEST_P(ByteStoreContract, CallersMayMakeTheSumThemselves) {
  const Bytes bytes = contents(1000, 8);
  const auto room = store->open(3, bytes.size());
  ASSERT_TRUE(room);
  std::copy(bytes.begin(), bytes.end(), room->begin());
  EXPECT_FALSE(store->read_unchecked(3));
  EXPECT_FALSE(store->check(3, ByteSum::of(bytes)));
  ASSERT_TRUE(store->seal(3, bytes.size(), ByteSum::of(bytes)));
  expect_saved(3, bytes);
  const auto unchecked = store->read_unchecked(3);
  ASSERT_TRUE(unchecked);
  EXPECT_TRUE(std::ranges::equal(*unchecked, bytes));
  EXPECT_TRUE(store->check(3, ByteSum::of(*unchecked)));
  (*room)[500] ^= 1;
  expect_error(store->check(3, ByteSum::of(*unchecked)), Errc::corrupt);
  // A checksum that does not match the bytes is not accepted later.
  const auto again = store->open(2, 10);
  ASSERT_TRUE(again);
  ASSERT_TRUE(store->seal(2, 10, 12345));
  expect_error(store->read(2), Errc::corrupt);
}

TEST_P(ByteStoreContract, DamageOfOneSlotIsNoOthersAffair) {
  save(1, contents(100, 1));
  const auto room = store->open(2, 100);
  ASSERT_TRUE(room);
  ASSERT_TRUE(store->seal(2, 100));
  save(3, contents(100, 3));
  (*room)[50] = 1;
  expect_error(store->read(2), Errc::corrupt);
  expect_saved(1, contents(100, 1));
  expect_saved(3, contents(100, 3));
  save(2, contents(40, 2));  // The slot is as good as any.
  expect_saved(2, contents(40, 2));
}

TEST_P(ByteStoreContract, RandomUseAgreesWithPlainVectors) {
  std::mt19937 random(20261116);
  std::vector<Bytes> plain(kSlots);
  std::vector<bool> sealed(kSlots);
  for (uint32_t step = 0; step < 3000; ++step) {
    const uint32_t slot = random() % kSlots;
    switch (random() % 4) {
      case 0:
      case 1:
        plain[slot] = contents(random() % 2000, step);
        sealed[slot] = true;
        save(slot, plain[slot]);
        break;
      case 2:
        store->drop(slot);
        sealed[slot] = false;
        break;
      default:
        if (sealed[slot]) {
          expect_saved(slot, plain[slot]);
        } else {
          expect_nothing(slot);
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stores, ByteStoreContract,
    ::testing::Values(Kind{"Pieces", [] { return make_memory_store(kSlots, 0); }, 0},
                      Kind{"Arena", [] { return make_memory_store(kSlots, kSlotBytes); },
                           kSlotBytes}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace stemma::test
