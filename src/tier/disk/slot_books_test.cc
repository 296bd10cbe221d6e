#include "tier/disk/slot_books.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace stemma::tier::disk {
namespace {

using What = SlotBooks::Room::What;

EntryKey key(uint64_t number) {
  EntryKey key;
  for (size_t i = 0; i < 8; ++i)
    key.chain.bytes[i] = static_cast<uint8_t>(number * 7919 >> (8 * i));
  key.chain.bytes[9] = static_cast<uint8_t>(number);
  key.chain.bytes[10] = static_cast<uint8_t>(number >> 8U);
  return key;
}

EntryInfo pages(uint64_t count) {
  return {.begin = 0, .end = 1, .layout = 0, .bytes = (count - 1) * kPage, .words = 0};
}

class SlotBooksTest : public ::testing::Test {
 protected:
  // 31 pages for slots: fifteen of two, seven of four.
  void create(uint32_t max_chunks) {
    books = SlotBooks::create({.chunk_bytes = 32 * kPage, .max_chunks = max_chunks}).value();
  }
  // As a tier does it: grows and changes as told.
  RecordId put(uint64_t number, uint64_t count, uint64_t not_after = ~uint64_t{0}) {
    for (;;) {
      const auto room = books->room_for(key(number), pages(count), kDefaultPriority, 1, not_after);
      if (room.what == What::none) return kNoRecord;
      if (room.what == What::slot) {
        books->publish(room.record, 1);
        return room.record;
      }
      changes += room.what == What::change ? 1U : 0U;
      EXPECT_TRUE(books->assign(room.chunk, static_cast<uint32_t>(slot_pages_for(count))));
    }
  }
  bool has(uint64_t number) const { return books->find(key(number)) != kNoRecord; }

  std::unique_ptr<SlotBooks> books;
  uint32_t changes = 0;
};

}  // namespace

TEST_F(SlotBooksTest, TheLeastRecentlyUsedGoesFirstAndExactly) {
  create(2);
  for (uint64_t i = 0; i < 30; ++i) put(i, 2);
  EXPECT_EQ(books->entries(), 30U);
  books->touch(books->find(key(0)), 2);
  for (uint64_t i = 30; i < 35; ++i) put(i, 2);
  EXPECT_TRUE(has(0));
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_FALSE(has(i)) << i;
  EXPECT_TRUE(has(6));
  EXPECT_EQ(books->evictions(), 5U);
  books->check_invariants();
}

TEST_F(SlotBooksTest, WhatIsReadStaysUntilItIsRead) {
  create(1);
  for (uint64_t i = 0; i < 15; ++i) put(i, 2);
  const RecordId first = books->find(key(0));
  books->pin(first);
  put(20, 2);
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
  // Removed while it is read: out of sight, but its slot is nobody else's yet.
  books->retire(first);
  EXPECT_FALSE(has(0));
  for (uint64_t i = 30; i < 60; ++i) EXPECT_NE(put(i, 2), first);
  books->check_invariants();
  books->unpin(first);
  books->free(first);
  books->check_invariants();
}

TEST_F(SlotBooksTest, EverythingInUseIsNoRoom) {
  create(1);
  for (uint64_t i = 0; i < 15; ++i) books->pin(put(i, 2));
  EXPECT_EQ(put(20, 2), kNoRecord);
  EXPECT_EQ(put(21, 4), kNoRecord);
  books->unpin(books->find(key(3)));
  EXPECT_NE(put(22, 2), kNoRecord);
  EXPECT_FALSE(has(3));
  books->check_invariants();
}

TEST_F(SlotBooksTest, NothingNewerThanAskedForIsGivenUp) {
  create(1);
  for (uint64_t i = 0; i < 10; ++i) put(i, 2);
  const uint64_t begun_at = books->stamp();
  for (uint64_t i = 10; i < 25; ++i) EXPECT_NE(put(i, 2, begun_at), kNoRecord);
  EXPECT_EQ(put(25, 2, begun_at), kNoRecord);
  for (uint64_t i = 10; i < 25; ++i) EXPECT_TRUE(has(i));
}

TEST_F(SlotBooksTest, AnotherClassTakesTheChunkThatWasUsedTheLongestAgo) {
  create(3);
  for (uint64_t i = 0; i < 45; ++i) put(i, 2);
  // The second chunk is the least used.
  for (uint64_t i = 0; i < 15; ++i) books->touch(books->find(key(i)), 2);
  EXPECT_NE(put(100, 4), kNoRecord);
  EXPECT_EQ(changes, 1U);
  for (uint64_t i = 0; i < 45; ++i) EXPECT_EQ(has(i), i < 15 || i >= 30) << i;
  // Its other slots are room now.
  for (uint64_t i = 101; i < 107; ++i) EXPECT_NE(put(i, 4), kNoRecord);
  EXPECT_EQ(changes, 1U);
  books->check_invariants();
}

TEST_F(SlotBooksTest, AnEmptyChunkChangesBeforeAnythingIsGivenUp) {
  create(2);
  for (uint64_t i = 0; i < 30; ++i) put(i, 2);
  for (uint64_t i = 0; i < 15; ++i) {
    const RecordId id = books->find(key(i));
    books->retire(id);
    books->free(id);
  }
  EXPECT_NE(put(100, 4), kNoRecord);
  EXPECT_EQ(books->evictions(), 0U);
  EXPECT_EQ(changes, 1U);
}

// Random life against a map; the books are checked all the time.
TEST_F(SlotBooksTest, RandomOperationsKeepTheBooksBalanced) {
  create(6);
  std::mt19937_64 random(5);
  std::map<uint64_t, RecordId> pinned;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t number = random() % 200;
    const RecordId id = books->find(key(number));
    switch (random() % 6) {
      case 0:
      case 1:
        if (id == kNoRecord && !pinned.contains(number)) put(number, 2 + number % 5);
        break;
      case 2:
        if (id != kNoRecord) books->touch(id, 1);
        break;
      case 3:
        if (id != kNoRecord && pinned.size() < 10 && pinned.emplace(number, id).second)
          books->pin(id);
        break;
      case 4:
        if (!pinned.empty()) {
          const auto [which, record] = *pinned.begin();
          const bool dying = (*books)[record].state == Record::State::dying;
          books->unpin(record);
          if (dying) books->free(record);
          pinned.erase(which);
        }
        break;
      default:
        if (id == kNoRecord) break;
        books->retire(id);
        if (!pinned.contains(number)) books->free(id);
    }
    for (const auto& [which, record] : pinned) ASSERT_EQ((*books)[record].key(), key(which));
    if (step % 50 == 0) books->check_invariants();
  }
  EXPECT_GT(books->evictions(), 100U);
  EXPECT_LE(books->chunks(), 6U);
}

}  // namespace stemma::tier::disk
