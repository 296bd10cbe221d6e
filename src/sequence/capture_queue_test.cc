#include "sequence/capture_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma::test {
namespace {

struct QueueOfCaptures {
  explicit QueueOfCaptures(uint32_t limit) : queue(records, stats, limit) {
    EXPECT_TRUE(queue.create(4));
  }
  uint64_t count(CaptureFate fate) const { return stats.captures[static_cast<size_t>(fate)]; }
  std::vector<uint32_t> order() const {
    std::vector<uint32_t> out;
    for (uint32_t s = queue.front(); s != sequence::CaptureQueue::kNone; s = queue.after(s)) {
      out.push_back(s);
    }
    return out;
  }
  std::vector<sequence::SequenceRecord> records = std::vector<sequence::SequenceRecord>(4);
  SequenceStats stats;
  sequence::CaptureQueue queue;
};

TEST(CaptureQueue, OldestComesFirst) {
  QueueOfCaptures it(4);
  it.queue.add(2, 10);
  it.queue.add(0, 20);
  it.queue.add(3, 30);
  EXPECT_EQ(it.order(), (std::vector<uint32_t>{2, 0, 3}));
  EXPECT_EQ(it.queue.size(), 3U);
  EXPECT_EQ(it.records[0].capture, 20U);
}

TEST(CaptureQueue, LaterCaptureOfASequenceReplacesTheEarlier) {
  QueueOfCaptures it(4);
  it.queue.add(2, 10);
  it.queue.add(0, 20);
  it.queue.add(2, 15);
  EXPECT_EQ(it.order(), (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(it.records[2].capture, 15U);
  EXPECT_EQ(it.count(CaptureFate::coalesced), 1U);
}

TEST(CaptureQueue, FullQueueGivesTheOldestUp) {
  QueueOfCaptures it(2);
  it.queue.add(0, 10);
  it.queue.add(1, 10);
  it.queue.add(2, 10);
  EXPECT_EQ(it.order(), (std::vector<uint32_t>{1, 2}));
  EXPECT_FALSE(it.queue.waits(0));
  EXPECT_EQ(it.records[0].capture, 0U);
  EXPECT_EQ(it.count(CaptureFate::crowded), 1U);
}

TEST(CaptureQueue, SequenceThatWaitsAlreadyCrowdsNobodyOut) {
  QueueOfCaptures it(2);
  it.queue.add(0, 10);
  it.queue.add(1, 10);
  it.queue.add(1, 20);
  EXPECT_EQ(it.queue.size(), 2U);
  EXPECT_EQ(it.count(CaptureFate::crowded), 0U);
}

TEST(CaptureQueue, CaptureThatIsGivenUpIsCountedAndOneWhoseTurnHasComeIsNot) {
  QueueOfCaptures it(4);
  it.queue.add(0, 10);
  it.queue.add(1, 20);
  it.queue.remove(0, CaptureFate::stale);
  EXPECT_EQ(it.count(CaptureFate::stale), 1U);
  EXPECT_EQ(it.queue.take(1), 20U);
  EXPECT_EQ(it.queue.size(), 0U);
  EXPECT_FALSE(it.queue.waits(1));
  uint64_t all = 0;
  for (const uint64_t count : it.stats.captures) all += count;
  EXPECT_EQ(all, 1U);
}

}  // namespace
}  // namespace stemma::test
