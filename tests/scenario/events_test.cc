// Events for routers and other observers.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

class Events : public PagedFixture {
 protected:
  static Options watched(uint32_t event_capacity, uint32_t blocks = 20) {
    Options options = grouped({full(blocks)});
    options.content_keys = true;
    options.event_capacity = event_capacity;
    return options;
  }
  std::vector<Event> since(const PagedCache& cache, uint64_t& from) {
    std::vector<Event> events;
    from = cache.events(from, 1000, events);
    return events;
  }
};

// What an observer knows after following the stream.
struct Observer {
  std::set<ContentKey> keys;                                    // Keys of the index.
  std::map<std::pair<GroupIndex, ContentKey>, bool> of_groups;  // And whether it is a tail.
  uint64_t next = 0;
  bool saw_gap = false;

  void apply(const Event& event) {
    if (event.kind == EventKind::cleared) keys.clear(), of_groups.clear();
    for (const ContentKey& key : event.keys) {
      if (event.kind == EventKind::stored) {
        EXPECT_TRUE(of_groups.emplace(std::pair(event.group, key), event.tail).second) << "twice";
        keys.insert(key);
      }
      if (event.kind == EventKind::removed) {
        EXPECT_EQ(of_groups.erase({event.group, key}), 1U) << "it was not there";
        if (event.group == 0 || event.group == kMaxGroups) keys.erase(key);
      }
    }
  }
  uint32_t has(GroupIndex group, bool tail = false) const {
    uint32_t blocks = 0;
    for (const auto& [what, is_tail] : of_groups) {
      blocks += what.first == group && is_tail == tail ? 1 : 0;
    }
    return blocks;
  }
  void follow(const PagedCache& cache) {
    std::vector<Event> events;
    uint64_t expected = next;
    next = cache.events(next, 1000, events);
    for (const Event& event : events) {
      saw_gap |= event.sequence != expected;
      expected = event.sequence + 1;
      apply(event);
    }
  }
  void start_over(const PagedCache& cache) {
    const EventDump dump = cache.event_dump();
    keys.clear();
    of_groups.clear();
    for (const Event& event : dump.events) apply(event);
    next = dump.next_sequence;
    saw_gap = false;
  }
};

TEST_F(Events, StoringThreeBlocksIsOneEventWithThreeKeys) {
  PagedCache& cache = cache_with(watched(16));
  uint64_t next = 0;
  Lease lease = take(cache, tokens(80));
  ok(lease.commit(48));
  std::vector<Event> events = since(cache, next);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, EventKind::stored);
  EXPECT_EQ(events[0].keys.size(), 3U);
  EXPECT_EQ(events[0].words, tokens(48).tokens);
  EXPECT_EQ(events[0].block_tokens, 16U);
  const ContentKey third = events[0].keys[2];

  ok(lease.commit(80));
  events = since(cache, next);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].parent, third) << "the parent is the previous key";
  EXPECT_EQ(events[0].keys.size(), 2U);
}

TEST_F(Events, StoringTheSameAgainIsNoEvent) {
  PagedCache& cache = cache_with(watched(16));
  Lease a = take(cache, tokens(48));
  Lease b = take(cache, tokens(48));
  compute(a);
  uint64_t next = 0;
  EXPECT_EQ(since(cache, next).size(), 1U);
  compute(b);
  ok(a.release());
  ok(b.release());
  fill(cache, tokens(48));
  EXPECT_TRUE(since(cache, next).empty());
}

TEST_F(Events, DroppingADuplicateIsNoEventDroppingTheLastCopyIsOne) {
  PagedCache& cache = cache_with(watched(16));
  Lease a = take(cache, tokens(16));
  Lease b = take(cache, tokens(16));
  compute(a);
  compute(b);
  uint64_t next = 0;
  const std::vector<Event> stored = since(cache, next);
  ok(b.release());
  ok(a.release());
  EXPECT_TRUE(since(cache, next).empty());
  EXPECT_EQ(cache.evict(1), 1U);
  const std::vector<Event> removed = since(cache, next);
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].kind, EventKind::removed);
  EXPECT_EQ(removed[0].keys, stored.at(0).keys);
}

TEST_F(Events, OverflowShowsAsAGapAndADumpRepairsIt) {
  PagedCache& cache = cache_with(watched(4));
  Observer observer;
  fill(cache, tokens(32, 1));
  observer.follow(cache);
  EXPECT_FALSE(observer.saw_gap);
  for (uint32_t seed = 2; seed < 12; ++seed) fill(cache, tokens(32, seed));
  observer.follow(cache);
  EXPECT_TRUE(observer.saw_gap);

  observer.start_over(cache);
  EXPECT_EQ(observer.keys.size(), cached_blocks(cache));
  fill(cache, tokens(32, 20));
  observer.follow(cache);
  EXPECT_FALSE(observer.saw_gap) << "the stream goes on where the dump ended";
  Observer fresh;
  fresh.start_over(cache);
  EXPECT_EQ(observer.keys, fresh.keys);
}

TEST_F(Events, FollowerAlwaysKnowsWhatADumpWouldSay) {
  PagedCache& cache = cache_with(watched(256, 12));
  Observer observer;
  for (uint32_t i = 0; i < 200; ++i) {
    switch (i % 7) {
      case 0: cache.evict(i % 3); break;
      case 3: ok(cache.truncate(scope, tokens(64, i % 5), i % 40)); break;
      case 5:
        if (i % 35 == 5) ok(cache.reset());
        break;
      default: fill(cache, tokens(16 * (i % 6), i % 5) + tokens(32, i % 11));
    }
    observer.follow(cache);
    ASSERT_FALSE(observer.saw_gap);
    Observer fresh;
    fresh.start_over(cache);
    ASSERT_EQ(observer.keys, fresh.keys) << "step " << i;
  }
}

TEST_F(Events, TailIsAnEventOfItsOwnAndSaysSo) {
  PagedCache& cache = cache_with(watched(16));
  fill(cache, tokens(40));
  uint64_t next = 0;
  std::vector<Event> events = since(cache, next);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_FALSE(events[0].tail);
  EXPECT_EQ(events[0].keys.size(), 2U);
  EXPECT_TRUE(events[1].tail);
  EXPECT_EQ(events[1].parent, events[0].keys[1]);
  EXPECT_EQ(events[1].words.size(), 8U);
  EXPECT_EQ(events[1].block_tokens, 16U);
  const ContentKey tail = events[1].keys.at(0);
  const std::vector<Event> dumped = cache.event_dump().events;
  ASSERT_EQ(dumped.size(), 2U);
  EXPECT_TRUE(dumped[1].tail);
  fill(cache, tokens(48));  // The whole block takes its place.
  events = since(cache, next);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_FALSE(events[0].tail);
  EXPECT_EQ(events[1].kind, EventKind::removed);
  EXPECT_EQ(events[1].keys, std::vector{tail});
}

TEST_F(Events, HolesOfAWindowAreToldOfItsGroupAlone) {
  Options options = grouped({full(20), window(32, 4)});
  options.event_capacity = 64;
  PagedCache& cache = cache_with(options);
  Observer observer;
  fill(cache, tokens(64));
  observer.follow(cache);
  EXPECT_EQ(observer.has(0), 4U);
  EXPECT_EQ(observer.has(1), 4U);
  uint64_t next = observer.next;
  Lease lease = take(cache, tokens(32, 2));  // Takes two blocks of the window group's four.
  const std::vector<Event> events = since(cache, next);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, EventKind::removed);
  EXPECT_EQ(events[0].group, 1U);
  EXPECT_EQ(events[0].keys.size(), 2U);
  observer.follow(cache);
  EXPECT_EQ(observer.has(0), 4U) << "the prefix stays";
  EXPECT_EQ(observer.has(1), 2U);
  Observer fresh;
  fresh.start_over(cache);
  EXPECT_EQ(fresh.of_groups, observer.of_groups);
}

TEST_F(Events, FollowerKnowsOfEveryGroupWhatADumpWouldSay) {
  const std::vector<std::vector<GroupOptions>> shapes = {
      {full(24), window(32, 9)},
      {full(24), full(10, 64), recurrent(3)},
      {full(12, 32), window(32, 12)},
      {window(48, 12), window(64, 8, 32)},
      {recurrent(4)},
  };
  for (const std::vector<GroupOptions>& groups : shapes) {
    SCOPED_TRACE(testing::Message() << "shape " << &groups - shapes.data());
    Options options = grouped(groups);
    options.event_capacity = 4096;
    PagedCache& cache = cache_with(options);
    Observer observer;
    for (uint32_t i = 0; i < 150; ++i) {
      switch (i % 7) {
        case 0: cache.evict(i % 3); break;
        case 3: ok(cache.truncate(scope, tokens(64, i % 5), i % 40)); break;
        case 5:
          if (i % 35 == 5) ok(cache.reset());
          if (i % 35 == 12) cache.drop_scope(scope);
          break;
        default: {
          const Text text = tokens(16 * (i % 4), i % 5) + tokens(16 + i % 23, i % 11);
          Lease lease = take(cache, text);
          if (!lease.copies().empty()) ok(lease.copies_done());
          ok(lease.commit(lease.length() - i % 2));
          for (GroupIndex g = 0; g < groups.size(); ++g) {
            if (groups[g].attention != Attention::recurrent) continue;
            if (ok(lease.draft_checkpoint(g)) == kNoBlock) continue;
            ok(lease.commit_checkpoint(g, i % 4 == 0 ? lease.committed() : 16));
          }
        }
      }
      observer.follow(cache);
      ASSERT_FALSE(observer.saw_gap);
      Observer fresh;
      fresh.start_over(cache);
      ASSERT_EQ(observer.of_groups, fresh.of_groups) << "step " << i;
      for (GroupIndex g = 0; g < groups.size(); ++g) {
        if (groups[g].attention == Attention::recurrent) continue;
        ASSERT_EQ(observer.has(g) + observer.has(g, true), cached_blocks(cache, g)) << "step " << i;
      }
    }
  }
}

TEST_F(Events, DumpIsOrderedSoThatParentsComeFirst) {
  PagedCache& cache = cache_with(watched(16));
  fill(cache, tokens(48));
  fill(cache, tokens(32) + tokens(32, 2));
  std::vector<Event> live;
  cache.events(0, 1000, live);
  const ContentKey root = live.at(0).parent;
  std::set<ContentKey> known = {root};
  uint32_t words = 0;
  for (const Event& event : cache.event_dump().events) {
    EXPECT_EQ(event.kind, EventKind::stored);
    EXPECT_EQ(event.words.size(), event.keys.size() * event.block_tokens);
    EXPECT_TRUE(known.contains(event.parent));
    known.insert(event.keys.begin(), event.keys.end());
    words += event.words.size();
  }
  EXPECT_EQ(words, 80U);
}

TEST_F(Events, ClearingEverythingIsToldAsSuch) {
  PagedCache& cache = cache_with(watched(16));
  fill(cache, tokens(48));
  uint64_t next = 0;
  since(cache, next);
  ok(cache.reset());
  const std::vector<Event> events = since(cache, next);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, EventKind::cleared);
  EXPECT_TRUE(cache.event_dump().events.empty());
}

TEST_F(Events, ReaderTakesAsManyAsItAsksFor) {
  PagedCache& cache = cache_with(watched(16));
  for (uint32_t seed = 1; seed <= 5; ++seed) fill(cache, tokens(16, seed));
  std::vector<Event> events;
  EXPECT_EQ(cache.events(0, 2, events), 2U);
  EXPECT_EQ(events.size(), 2U);
  EXPECT_EQ(cache.events(2, 2, events), 4U);
  EXPECT_EQ(cache.events(4, 2, events), 5U);
  EXPECT_EQ(cache.events(5, 2, events), 5U);
  EXPECT_EQ(cache.events(0, 0, events), 0U);
}

TEST_F(Events, UnwatchedCacheHasNone) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(48));
  std::vector<Event> events;
  EXPECT_EQ(cache.events(0, 100, events), 0U);
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace stemma::test
