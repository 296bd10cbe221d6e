#include "tier/disk/books.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace stemma::tier::disk {
namespace {

using What = Books::Room::What;

EntryKey key(uint64_t number) {
  EntryKey key;
  for (size_t i = 0; i < 8; ++i)
    key.chain.bytes[i] = static_cast<uint8_t>(number * 7919 >> (8 * i));
  key.chain.bytes[9] = static_cast<uint8_t>(number);
  key.chain.bytes[10] = static_cast<uint8_t>(number >> 8U);
  return key;
}

EntryInfo pages(uint64_t count) {
  return {.begin = 0, .end = 1, .layout = 0, .bytes = count * kPage, .words = 0};
}

class BooksTest : public ::testing::Test {
 protected:
  void create(uint64_t max_pages) { books = Books::create({.max_pages = max_pages}).value(); }
  RecordId take(uint64_t number, uint64_t count, uint64_t not_after = ~uint64_t{0}) {
    for (;;) {
      const auto room = books->room_for(key(number), pages(count), kDefaultPriority, 1, not_after);
      if (room.what != What::grow) return room.record;
      EXPECT_TRUE(books->grown(room.pages));
    }
  }
  RecordId put(uint64_t number, uint64_t count, uint64_t not_after = ~uint64_t{0}) {
    const RecordId id = take(number, count, not_after);
    if (id != kNoRecord) books->publish(id, 0, 0, 1);
    return id;
  }
  void remove(uint64_t number) {
    const RecordId id = books->find(key(number));
    books->retire(id);
    books->recycle(id);
  }
  bool has(uint64_t number) const { return books->find(key(number)) != kNoRecord; }
  uint32_t extents(uint64_t number) const {
    std::array<Extent, kMostExtents> out;
    return books->extents(books->find(key(number)), out);
  }

  std::unique_ptr<Books> books;
};

}  // namespace

TEST_F(BooksTest, TheLeastRecentlyUsedGoesFirstAndExactly) {
  create(60);
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

TEST_F(BooksTest, OneEntryLiesInSeveralPlacesWhenNoneIsLargeEnough) {
  create(64);
  for (uint64_t i = 0; i < 32; ++i) put(i, 2);
  for (uint64_t i = 0; i < 32; i += 4) remove(i);
  EXPECT_NE(put(100, 7), kNoRecord);
  EXPECT_EQ(books->evictions(), 0U);
  EXPECT_EQ(extents(100), 4U);
  std::array<Extent, kMostExtents> out;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < books->extents(books->find(key(100)), out); ++i) sum += out[i].pages;
  EXPECT_EQ(sum, 7U);
  books->check_invariants();
}

TEST_F(BooksTest, WhatIsTooScatteredGoesTogetherWithItsNeighbours) {
  create(640);
  for (uint64_t i = 0; i < 640; ++i) put(i, 1);
  // Every second entry is older, so pages freed in order of age are never adjacent.
  for (uint64_t i = 0; i < 640; i += 2) books->touch(books->find(key(i)), 2);
  EXPECT_NE(put(1000, 60), kNoRecord);
  EXPECT_LE(extents(1000), kMostExtents);
  // Little more than the put needs; the older half is not emptied for it.
  EXPECT_LT(books->evictions(), 60U + 640 / 32 + 60);
  books->check_invariants();
}

TEST_F(BooksTest, WhatIsReadStaysUntilItIsRead) {
  create(30);
  for (uint64_t i = 0; i < 15; ++i) put(i, 2);
  const RecordId first = books->find(key(0));
  std::array<Extent, kMostExtents> place;
  books->extents(first, place);
  books->pin(first);
  put(20, 2);
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
  // Removed while it is read: invisible, but its pages are not reused yet.
  books->retire(first);
  books->recycle(first);
  EXPECT_FALSE(has(0));
  for (uint64_t i = 30; i < 60; ++i) {
    std::array<Extent, kMostExtents> other;
    const RecordId id = put(i, 2);
    EXPECT_NE(id, first);
    books->extents(id, other);
    EXPECT_NE(other[0].first, place[0].first);
  }
  books->check_invariants();
  books->unpin(first);
  books->check_invariants();
  EXPECT_EQ(books->used_bytes(), 28 * kPage);
}

TEST_F(BooksTest, EverythingInUseIsNoRoom) {
  create(30);
  for (uint64_t i = 0; i < 15; ++i) books->pin(put(i, 2));
  EXPECT_EQ(put(20, 2), kNoRecord);
  EXPECT_EQ(put(21, 4), kNoRecord);
  books->unpin(books->find(key(3)));
  EXPECT_NE(put(22, 2), kNoRecord);
  EXPECT_FALSE(has(3));
  EXPECT_EQ(put(23, 31), kNoRecord);
  books->check_invariants();
}

TEST_F(BooksTest, NothingNewerThanAskedForIsGivenUp) {
  create(30);
  for (uint64_t i = 0; i < 10; ++i) put(i, 2);
  const uint64_t begun_at = books->stamp();
  for (uint64_t i = 10; i < 25; ++i) EXPECT_NE(put(i, 2, begun_at), kNoRecord);
  EXPECT_EQ(put(25, 2, begun_at), kNoRecord);
  for (uint64_t i = 10; i < 25; ++i) EXPECT_TRUE(has(i));
}

// A key has at most one record on disk, so removing that one is enough.
TEST_F(BooksTest, WhatWasEvictedGivesItsRecordToItsOwnKeyFirst) {
  create(4);
  const RecordId first = put(1, 2);
  put(2, 2);
  put(3, 2);  // Takes the place of the first, and its record too.
  EXPECT_EQ(books->find_stale(key(1)), kNoRecord);
  EXPECT_EQ(books->find(key(3)), first);
  put(4, 4);  // Evicts both, and takes one of their records.
  const RecordId stale = books->find_stale(key(2)) != kNoRecord ? books->find_stale(key(2))
                                                                : books->find_stale(key(3));
  ASSERT_NE(stale, kNoRecord);
  const EntryKey its = (*books)[stale].key();
  EXPECT_NE(put(5, 1), stale == kNoRecord ? stale : kNoRecord);
  const auto room = books->room_for(its, pages(1), kDefaultPriority, 1, ~uint64_t{0});
  EXPECT_EQ(room.what, What::taken);
  EXPECT_EQ(books->find_stale(its), kNoRecord);
  books->check_invariants();
}

TEST_F(BooksTest, RetiredPagesAreNotUsedAgainUntilTheyAreRestored) {
  create(16);
  const RecordId bad = put(1, 4);
  books->retire(bad, 1);
  books->recycle(bad);
  EXPECT_EQ(books->retired_bytes(), 4 * kPage);
  for (uint64_t i = 10; i < 30; ++i) {
    std::array<Extent, kMostExtents> out;
    const RecordId id = put(i, 4);
    ASSERT_NE(id, kNoRecord);
    books->extents(id, out);
    EXPECT_NE(out[0].first, 0U);
    EXPECT_NE(id, bad);
  }
  EXPECT_EQ(books->entries(), 3U);
  EXPECT_EQ(put(40, 13), kNoRecord);
  EXPECT_TRUE(books->restore(bad));
  books->recycle(bad);
  EXPECT_EQ(books->retired_bytes(), 0U);
  EXPECT_NE(put(41, 16), kNoRecord);
  books->check_invariants();
}

TEST_F(BooksTest, ABadPageOfTheTableIsNotGivenOut) {
  create(64);
  for (uint64_t i = 0; i < 5; ++i) put(i, 1);
  books->lose_table_page(0);
  remove(0);
  for (uint64_t i = 10; i < 40; ++i) EXPECT_GE(put(i, 1), kRecordsInPage);
  EXPECT_TRUE(has(3));
  books->check_invariants();
}

// Random operations compared with a map; the books are checked all the time.
TEST_F(BooksTest, RandomOperationsKeepTheBooksBalanced) {
  create(190);
  std::mt19937_64 random(5);
  std::map<uint64_t, RecordId> pinned;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t number = random() % 200;
    const RecordId id = books->find(key(number));
    switch (random() % 7) {
      case 0:
      case 1:
        if (id == kNoRecord && !pinned.contains(number)) put(number, 1 + number % 9);
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
          books->unpin(record);
          pinned.erase(which);
        }
        break;
      case 5:
        if (const RecordId stale = books->take_stale(); stale != kNoRecord) books->recycle(stale);
        break;
      default:
        if (id == kNoRecord) break;
        if (pinned.contains(number) && step % 2 == 0) break;
        books->retire(id);
        books->recycle(id);
    }
    for (const auto& [which, record] : pinned) ASSERT_EQ((*books)[record].key(), key(which));
    if (step % 50 == 0) books->check_invariants();
  }
  EXPECT_GT(books->evictions(), 100U);
  EXPECT_LE(books->used_bytes(), 190 * kPage);
}

}  // namespace stemma::tier::disk
