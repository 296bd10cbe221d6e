#include "cache/books/event_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma::cache {
namespace {

ContentKey key(uint8_t number) {
  ContentKey made;
  made.bytes.fill(number);
  return made;
}
std::vector<Event> all(const EventLog& log) {
  std::vector<Event> out;
  (void)log.copy(0, 1000, out);
  return out;
}
// A block of two words after `parent`.
void store(EventLog& log, uint8_t parent, uint8_t number) {
  const uint32_t words[] = {number * 10U, number * 10U + 1};
  log.stored(key(parent), key(number), words, 2);
}
using Keys = std::vector<ContentKey>;

TEST(EventLog, SwitchedOffLogKeepsNothing) {
  EventLog log(0);
  EXPECT_FALSE(log.on());
  store(log, 0, 1);
  log.removed(key(1));
  log.cleared();
  EXPECT_EQ(log.next_sequence(), 0U);
  std::vector<Event> out;
  EXPECT_EQ(log.copy(7, 10, out), 7U);
  EXPECT_TRUE(out.empty());
}

TEST(EventLog, BlocksThatFollowEachOtherAreOneEvent) {
  EventLog log(8);
  for (uint8_t i = 1; i <= 3; ++i) store(log, i - 1, i);
  const auto events = all(log);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, EventKind::stored);
  EXPECT_EQ(events[0].parent, key(0));
  EXPECT_EQ(events[0].keys, (Keys{key(1), key(2), key(3)}));
  EXPECT_EQ(events[0].words, (std::vector<uint32_t>{10, 11, 20, 21, 30, 31}));
  EXPECT_EQ(events[0].block_tokens, 2U);
}

TEST(EventLog, AnythingElseEndsTheGrowingEvent) {
  EventLog log(8);
  store(log, 0, 1);
  store(log, 0, 2);  // A sibling.
  log.removed(key(1));
  log.removed(key(5));  // Removals go together, of any parent.
  store(log, 2, 3);
  log.seal();
  store(log, 3, 4);
  log.cleared();
  log.removed(key(4));
  const auto events = all(log);
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[1].parent, key(0));
  EXPECT_EQ(events[2].kind, EventKind::removed);
  EXPECT_EQ(events[2].keys, (Keys{key(1), key(5)}));
  EXPECT_EQ(events[3].parent, key(2));
  EXPECT_EQ(events[4].parent, key(3));
  EXPECT_EQ(events[5].kind, EventKind::cleared);
  EXPECT_TRUE(events[5].keys.empty());
  EXPECT_EQ(events[6].keys, (Keys{key(4)}));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].sequence, i);
}

TEST(EventLog, SealedEventsNeverGrowAgain) {
  EventLog log(8);
  log.removed(key(1));
  log.seal();
  log.removed(key(2));
  EXPECT_EQ(all(log).size(), 2U) << "an observer may have taken the first one already";
}

TEST(EventLog, ReaderGoesOnWhereItStopped) {
  EventLog log(8);
  for (uint8_t i = 0; i < 5; ++i) {
    log.removed(key(i));
    log.seal();
  }
  std::vector<Event> out;
  EXPECT_EQ(log.copy(0, 2, out), 2U);
  EXPECT_EQ(log.copy(2, 2, out), 4U);
  EXPECT_EQ(log.copy(4, 2, out), 5U);
  EXPECT_EQ(log.copy(5, 2, out), 5U);
  EXPECT_EQ(log.copy(900, 2, out), 5U) << "never was: the reader knows another cache's numbers";
  ASSERT_EQ(out.size(), 5U);
  for (uint8_t i = 0; i < 5; ++i) EXPECT_EQ(out[i].keys, (Keys{key(i)}));
  EXPECT_EQ(log.copy(0, 0, out), 0U);
  EXPECT_EQ(out.size(), 5U);
}

TEST(EventLog, OverflowShowsAsAGapInTheNumbers) {
  EventLog log(4);
  for (uint8_t i = 0; i < 10; ++i) {
    store(log, i, i + 1);
    log.seal();
  }
  std::vector<Event> out;
  EXPECT_EQ(log.copy(2, 2, out), 8U);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].sequence, 6U) << "asked for 2: four events are gone";
  EXPECT_EQ(out[0].parent, key(6));
  EXPECT_EQ(log.next_sequence(), 10U);
}

TEST(EventLog, ReusedPlacesShowNothingOfTheirPast) {
  EventLog log(1);
  store(log, 0, 1);
  log.seal();
  log.removed(key(9));
  const auto events = all(log);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].sequence, 1U);
  EXPECT_EQ(events[0].parent, ContentKey{});
  EXPECT_TRUE(events[0].words.empty());
  EXPECT_EQ(events[0].block_tokens, 0U);
  EXPECT_EQ(events[0].keys, (Keys{key(9)}));
}

TEST(EventLog, WarmRingTakesNoMoreMemory) {
  EventLog log(16);
  uint64_t warm = 0;
  for (int round = 0; round < 100; ++round) {
    for (uint8_t i = 0; i < 32; ++i) store(log, i, i + 1);
    log.seal();
    log.removed(key(1));
    log.seal();
    if (round == 20) warm = log.bytes();
  }
  EXPECT_EQ(log.bytes(), warm);
}

}  // namespace
}  // namespace stemma::cache
