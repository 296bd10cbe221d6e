#include "cache/lease/record_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "cache/lease/lease_queue.h"

namespace stemma::cache {
namespace {

Options options(uint64_t budget_bytes = 0) {
  Options made;
  made.groups = {GroupOptions{.capacity_blocks = 8}};
  made.budget_bytes = budget_bytes;
  return made;
}

TEST(RecordPool, ARecordComesBackCleanAndKeepsItsMemory) {
  RecordPool pool(options());
  LeaseRecord* record = pool.take();
  record->words.assign(1'000, 7);
  record->length = 1'000;
  record->tip = 3;
  record->held_slot[0] = 5;
  pool.give_back(record);
  EXPECT_GT(pool.bytes(), 4'000u);
  LeaseRecord* again = pool.take();
  EXPECT_EQ(again, record);
  EXPECT_TRUE(again->words.empty());
  EXPECT_GE(again->words.capacity(), 1'000u);
  EXPECT_EQ(again->length, 0u);
  EXPECT_EQ(again->tip, kNoCell);
  EXPECT_EQ(again->held_slot[0], kNoPage);
}

TEST(RecordPool, NoRecordIsLentTwice) {
  RecordPool pool(options());
  LeaseRecord* first = pool.take();
  LeaseRecord* second = pool.take();
  EXPECT_NE(first, second);
  pool.give_back(first);
  pool.give_back(second);
  LeaseRecord* third = pool.take();
  LeaseRecord* fourth = pool.take();
  EXPECT_NE(third, fourth);
}

TEST(RecordPool, RecordsBeyondTheAllowanceAreFreed) {
  RecordPool pool(options(1 << 20));
  for (int i = 0; i < 4; ++i) {
    RecordPool::Borrowed record(pool);
    record->words.assign(1 << 20, 7);
  }
  EXPECT_LE(pool.bytes(), record_allowance(options(1 << 20)));
}

TEST(RecordPool, AKeptRecordIsNotGivenBack) {
  RecordPool pool(options());
  LeaseRecord* kept;
  {
    RecordPool::Borrowed record(pool);
    kept = record.keep();
  }
  EXPECT_NE(pool.take(), kept);
}

TEST(RecordPool, ThreadsNeverShareARecord) {
  RecordPool pool(options());
  std::vector<std::thread> threads;
  std::atomic<int> clashes{0};
  for (uint32_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2'000; ++i) {
        RecordPool::Borrowed record(pool);
        record->length = t;
        std::this_thread::yield();
        if (record->length != t) ++clashes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes.load(), 0);
}

TEST(LeaseQueue, IsFirstInFirstOut) {
  LeaseRecord a, b;
  LeaseQueue queue;
  EXPECT_EQ(queue.pop(), nullptr);
  queue.push(&a);
  queue.push(&b);
  EXPECT_EQ(queue.pop(), &a);
  queue.push(&a);
  EXPECT_EQ(queue.pop(), &b);
  EXPECT_EQ(queue.pop(), &a);
  EXPECT_TRUE(queue.empty());
}

TEST(LeaseQueue, OlderLeasesComeBeforeYoungerOnes) {
  LeaseRecord a, b, c;
  LeaseQueue older, younger;
  younger.put_before(older);  // Nothing of nothing.
  older.push(&a);
  younger.put_before(older);
  EXPECT_TRUE(older.empty());
  older.push(&b);  // Both can still be used.
  younger.push(&c);
  older.put_before(younger);
  EXPECT_EQ(older.pop(), &a);
  EXPECT_EQ(older.pop(), &c);
  EXPECT_EQ(older.pop(), &b);
  EXPECT_EQ(older.pop(), nullptr);
}

}  // namespace
}  // namespace stemma::cache
