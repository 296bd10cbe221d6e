// What only stores in memory guarantee; tests/contract/byte_store_test.cc has the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/slab.h"
#include "stemma/byte_store.h"

namespace stemma {
namespace {

TEST(MemoryStore, ArenaBeyondWhatCanBeAddressedIsRefused) {
  EXPECT_EQ(make_memory_store(0xFFFF'FFFFU, ~uint64_t{0}), nullptr);
  EXPECT_EQ(make_memory_store(1U << 31U, uint64_t{1} << 40U), nullptr);
  // A product that is small once it has overflowed.
  EXPECT_EQ(make_memory_store(1U << 31U, uint64_t{1} << 33U), nullptr);
}

TEST(MemoryStore, ArenaTakesPagesAsSlotsAreUsed) {
  const auto store = make_memory_store(1U << 20U, 1U << 20U);  // A TiB of address space.
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->open(0, 1U << 20U));
  ASSERT_TRUE(store->seal(0, 1U << 20U));
  EXPECT_TRUE(store->read(0));
}

TEST(MemoryStore, SlotsOfAnArenaLieSideBySide) {
  const auto store = make_memory_store(4, 100);
  const auto first = store->open(0, 100);
  const auto second = store->open(1, 40);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->data() - first->data(), 100);
}

TEST(MemoryStore, ArenaWithoutMemorySaysSoAndGoesOnLater) {
  const auto store = make_memory_store(4, 1U << 16U);
  ASSERT_TRUE(store->open(0, 10));
  ASSERT_TRUE(store->seal(0, 10));
  base::refuse_slab_memory_after(0);
  const auto refused = store->open(3, 10);
  base::refuse_slab_memory_after(base::kUnlimited);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::out_of_memory);
  EXPECT_EQ(store->read(3).error().code(), Errc::stale);
  EXPECT_TRUE(store->read(0));
  EXPECT_TRUE(store->open(3, 10));
}

TEST(MemoryStore, LargePiecesAreZeroedEveryTime) {
  constexpr uint64_t kBytes = (3U << 20U) + 1;
  const auto store = make_memory_store(2, 0);
  for (uint32_t round = 0; round < 3; ++round) {
    const auto room = store->open(0, kBytes);
    ASSERT_TRUE(room);
    ASSERT_EQ(room->size(), kBytes);
    EXPECT_TRUE(std::ranges::all_of(*room, [](uint8_t byte) { return byte == 0; }));
    std::ranges::fill(*room, uint8_t{7});
    ASSERT_TRUE(store->seal(0, kBytes));
    EXPECT_TRUE(store->read(0));
  }
}

TEST(MemoryStore, ALargePieceWithoutMemorySaysSoAndGoesOnLater) {
  const auto store = make_memory_store(2, 0);
  base::refuse_slab_memory_after(0);
  const auto refused = store->open(0, 2U << 20U);
  base::refuse_slab_memory_after(base::kUnlimited);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::out_of_memory);
  EXPECT_TRUE(store->open(0, 2U << 20U));
}

TEST(MemoryStore, NoAddressSpaceMeansNoStore) {
  base::refuse_slab_memory_after(0);
  const auto arena = make_memory_store(4, 1U << 16U);
  base::refuse_slab_memory_after(base::kUnlimited);
  EXPECT_EQ(arena, nullptr);
}

TEST(MemoryStore, StoreWithoutSlotsIsOneThatRefuses) {
  const auto store = make_memory_store(0, 0);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->open(0, 1).error().code(), Errc::out_of_range);
}

// Sealing and reading, the slow calls, run beside any change of other slots.
TEST(MemoryStore, SlotsAreReadAndSealedBesideOthers) {
  for (const uint64_t slot_bytes : {uint64_t{0}, uint64_t{20'000}}) {
    const auto store = make_memory_store(16, slot_bytes);
    for (uint32_t slot = 0; slot < 2; ++slot) {
      std::ranges::fill(*store->open(slot, 20'000), static_cast<uint8_t>(slot + 1));
      ASSERT_TRUE(store->seal(slot, 20'000));
    }
    std::atomic<bool> stop{false};
    std::thread reader([&] {
      while (!stop) {
        const auto read = store->read(0);
        ASSERT_TRUE(read);
        ASSERT_EQ((*read)[19'999], 1);
      }
    });
    for (uint32_t i = 0; i < 500; ++i) {
      const uint32_t slot = 2 + i % 14;
      ASSERT_TRUE(store->open(slot, 1 + i * 37 % 20'000));
      ASSERT_TRUE(store->seal(slot, 1));
      if (i % 3 == 0) store->drop(slot);
    }
    stop = true;
    reader.join();
  }
}

}  // namespace
}  // namespace stemma
