#include "tiers/tier_suite.h"
#include "support/now.h"

#include <atomic>
#include <iterator>
#include <thread>

namespace stemma::test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TierContract);

using enum TierOutcome;

namespace {}  // namespace

// ---- What is put is what is got ----

TEST_P(TierContract, WhatWasPutIsThereUntilItIsRemoved) {
  const Entry one = entry(1, 0, 3000);
  expect_absent(one);
  EXPECT_EQ(client->put(one), done);
  expect_there(one);
  expect_there(one);
  EXPECT_EQ(client->remove(one), done);
  expect_absent(one);
  EXPECT_EQ(client->remove(one), absent);
  EXPECT_EQ(client->put(one), done);
  expect_there(one);
}

TEST_P(TierContract, EverySizeComesBackWhole) {
  uint64_t prompt = 100;
  for (const uint64_t bytes :
       {1U,    7U,    63U,   64U,   65U,   127U,  128U,    511U,    512U,       513U,
        3967U, 3968U, 3969U, 4095U, 4096U, 4097U, 65'536U, 65'537U, 1'000'003U, 2'097'152U}) {
    const Entry one = entry(++prompt, 3, bytes);
    ASSERT_EQ(client->put(one), done) << bytes;
    expect_there(one);
  }
}

TEST_P(TierContract, EveryKindAndGroupIsAnEntryOfItsOwn) {
  std::vector<Entry> all_kinds;
  for (const EntryKind kind : {EntryKind::block, EntryKind::segment, EntryKind::state,
                               EntryKind::checkpoint, EntryKind::logits}) {
    for (const uint8_t group : {uint8_t{0}, uint8_t{1}, uint8_t{255}}) {
      Entry one = entry(1, 0, 100 + all_kinds.size());
      one.key.kind = kind;
      one.key.group = group;
      all_kinds.push_back(std::move(one));
    }
  }
  EXPECT_EQ(client->put(all_kinds), all(all_kinds.size(), done));
  for (const Entry& one : all_kinds) expect_there(one);
  EXPECT_EQ(client->remove(all_kinds[4]), done);
  expect_absent(all_kinds[4]);
  for (size_t i = 0; i < all_kinds.size(); ++i) {
    if (i != 4) expect_there(all_kinds[i]);
  }
}

TEST_P(TierContract, BatchesMayNameWhatIsThereAndWhatIsNot) {
  const auto prompt = entries(7, 12, 5000);
  std::vector<Entry> even;
  for (size_t i = 0; i < prompt.size(); i += 2) even.push_back(prompt[i]);
  EXPECT_EQ(client->put(even), all(even.size(), done));
  const Outcomes there = client->contains(prompt);
  const std::vector<Got> got = client->get(prompt);
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_EQ(there[i], i % 2 == 0 ? done : absent) << i;
    EXPECT_EQ(got[i].outcome, there[i]) << i;
    if (i % 2 == 0) {
      EXPECT_EQ(got[i].bytes, prompt[i].bytes) << i;
    }
  }
  const Outcomes removed = client->remove(std::span(prompt).subspan(3, 4));
  EXPECT_EQ(removed, (Outcomes{absent, done, absent, done}));
  expect_there(prompt[2]);
  expect_absent(prompt[4]);
}

TEST_P(TierContract, OneBatchMayNameAnEntryTwice) {
  const Entry one = entry(1, 0, 4000);
  const std::vector<Entry> twice{one, one};
  EXPECT_EQ(client->put(twice), all(2, done));
  const auto got = client->get(twice);
  EXPECT_EQ(got[0].bytes, one.bytes);
  EXPECT_EQ(got[1].bytes, one.bytes);
  expect_there(one);
}

TEST_P(TierContract, AnEmptyBatchIsFinished) {
  for (const TierOp op : kEveryOp) {
    Work work(op, {});
    work.submit_to(*tier);
    EXPECT_TRUE(work.batch->finished());
    EXPECT_TRUE(work.batch->wait());
  }
}

TEST_P(TierContract, AReaderNeedsToKnowOnlyKeyAndLayout) {
  const Entry one = entry(9, 4, 700);
  ASSERT_EQ(client->put(one), done);
  Bytes room(2000);
  Work work(TierOp::get, std::span(&one, 1));
  TierItem& item = work.batch->items()[0];
  item.info = {.layout = one.info.layout};
  item.into = room;
  work.submit_to(*tier);
  work.finish();
  ASSERT_EQ(item.outcome, done);
  EXPECT_EQ(item.info, one.info);
  EXPECT_TRUE(std::equal(one.bytes.begin(), one.bytes.end(), room.begin()));
}

TEST_P(TierContract, WordsAreKeptOnlyWhenGiven) {
  const Entry without = entry(1, 2, 900);
  const Entry with = with_words(entry(2, 2, 900));
  ASSERT_EQ(client->put(without), done);
  ASSERT_EQ(client->put(with), done);
  expect_there(without);
  expect_there(with);
}

// ---- What does not fit, what is not believed ----

TEST_P(TierContract, TheLargestEntryIsTakenAndALargerOneIsRefused) {
  open(kTight);
  const uint64_t most = tier->traits().max_entry_bytes;
  ASSERT_NE(most, 0U);
  if (most > kRoomy) GTEST_SKIP() << "too large to try";
  const Entry largest = entry(1, 0, most);
  EXPECT_EQ(client->put(largest), done);
  expect_there(largest);
  const Entry larger = entry(2, 0, most + 1);
  EXPECT_EQ(client->put(larger), refused);
  expect_absent(larger);
  expect_there(largest);
  EXPECT_EQ(tier->stats().refused, 1U);
}

TEST_P(TierContract, APutThatContradictsItselfIsRefused) {
  const Entry good = entry(1, 0, 1000);
  const auto refused_when = [&](const std::function<void(TierItem&)>& change) {
    Work work(TierOp::put, std::span(&good, 1));
    change(work.batch->items()[0]);
    work.submit_to(*tier);
    EXPECT_EQ(work.finish().outcomes()[0], refused);
    EXPECT_EQ(client->contains(good), absent);
  };
  refused_when([](TierItem& item) { item.info.bytes = 999; });
  refused_when([](TierItem& item) { item.info.bytes = 1001; });
  refused_when([](TierItem& item) { item.info.bytes = 0, item.source = {}; });
  refused_when([](TierItem& item) { item.info.end = 0; });
  refused_when([](TierItem& item) { item.info.begin = item.info.end + 1; });
  refused_when([](TierItem& item) { item.info.words = 16; });
  refused_when([](TierItem& item) { item.key.kind = EntryKind{0}; });
}

TEST_P(TierContract, TooLittleRoomIsRefusedAndNothingIsLost) {
  const Entry one = entry(1, 0, 5000);
  ASSERT_EQ(client->put(one), done);
  Work work(TierOp::get, std::span(&one, 1));
  work.batch->items()[0].into = work.batch->items()[0].into.first(4999);
  work.submit_to(*tier);
  EXPECT_EQ(work.finish().outcomes()[0], refused);
  expect_there(one);
}

// A key that disagrees with its entry is a miss, whatever the status, and the right entry can be
// put again.
TEST_P(TierContract, WhatDescribesItselfOtherwiseIsNotServed) {
  const Entry one = entry(1, 5, 2000);
  const auto misses = [&](const std::function<void(Entry&)>& change) {
    ASSERT_EQ(client->put(one), done);
    Entry other = one;
    change(other);
    const TierOutcome outcome = client->get(other).outcome;
    EXPECT_TRUE(outcome == absent || outcome == corrupt) << to_string(outcome);
  };
  misses([](Entry& e) { e.info.layout ^= 1U; });
  misses([](Entry& e) { e.info.end += 16; });
  misses([](Entry& e) { e.info.begin -= 16; });
  misses([](Entry& e) { e.key.kind = EntryKind::segment; });
  misses([](Entry& e) { e.key.group = 1; });
  misses([](Entry& e) { e.key.chain.bytes[0] ^= 1U; });
  misses([](Entry& e) { e.key.chain.bytes[31] ^= 0x80U; });
  ASSERT_EQ(client->put(one), done);
  expect_there(one);
}

// During an upgrade two programs may use one tier.
TEST_P(TierContract, AReaderWithAnotherLayoutLeavesEntriesAlone) {
  const Entry one = entry(1, 5, 2000);
  ASSERT_EQ(client->put(one), done);
  Entry other = one;
  other.info.layout ^= 1U;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client->get(other).outcome, absent);
  expect_there(one);
  EXPECT_EQ(tier->stats().corrupt, 0U);
}

// ---- Puts of what is there ----

TEST_P(TierContract, EqualPutsAreOneEntry) {
  const Entry one = entry(1, 0, 30'000);
  ASSERT_EQ(client->put(one), done);
  tier->flush(now_ns() + kPatienceNs);
  const TierStats before = tier->stats();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client->put(one), done);
  tier->flush(now_ns() + kPatienceNs);
  const TierStats after = tier->stats();
  EXPECT_EQ(after.entries, before.entries);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
  EXPECT_EQ(after.puts, before.puts + 5);
  EXPECT_LE(after.already_there, before.already_there + 5);
  expect_there(one);
  EXPECT_EQ(client->remove(one), done);
  expect_absent(one);
}

TEST_P(TierContract, APutWithAnotherDescriptionReplacesWhatWasThere) {
  Entry one = entry(1, 0, 3000);
  ASSERT_EQ(client->put(one), done);
  Entry other = entry(1, 0, 5000);
  other.info.layout ^= 2U;
  ASSERT_EQ(client->put(other), done);
  expect_there(other);
  EXPECT_NE(client->get(one).outcome, done);
}

// ---- Time, and who changes his mind ----

TEST_P(TierContract, NothingBeginsAfterItsDeadline) {
  const auto prompt = entries(1, 4, 2000);
  ASSERT_EQ(client->put(std::span(prompt).first(2)), all(2, done));
  for (const TierOp op : kEveryOp) {
    Work work(op, prompt);
    work.batch->deadline_ns = now_ns();
    work.submit_to(*tier);
    EXPECT_EQ(work.finish().outcomes(), all(4, late));
  }
  EXPECT_EQ(tier->stats().late, 4 * std::size(kEveryOp));
  expect_there(prompt[0]);
  expect_absent(prompt[2]);
}

TEST_P(TierContract, ADeadlineFarAwayChangesNothing) {
  const Entry one = entry(1, 0, 2000);
  Work work(TierOp::put, std::span(&one, 1));
  work.batch->deadline_ns = now_ns() + kPatienceNs;
  work.submit_to(*tier);
  EXPECT_EQ(work.finish().outcomes()[0], done);
  expect_there(one);
}

TEST_P(TierContract, ATightDeadlineLeavesEntriesWholeOrAbsent) {
  for (uint64_t round = 0; round < 20; ++round) {
    const auto prompt = entries(round, 8, 40'000);
    Work work(TierOp::put, prompt);
    work.batch->deadline_ns = now_ns() + round * 10'000;
    work.submit_to(*tier);
    const Outcomes outcomes = work.finish().outcomes();
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_TRUE(outcomes[i] == done || outcomes[i] == late) << to_string(outcomes[i]);
      const bool there = client->whole_or_absent(prompt[i]);
      EXPECT_TRUE(there || outcomes[i] == late);
    }
  }
}

TEST_P(TierContract, WhatIsCancelledBeforeItBeginsNeverDoes) {
  const auto prompt = entries(1, 4, 2000);
  ASSERT_EQ(client->put(std::span(prompt).first(2)), all(2, done));
  for (const TierOp op : kEveryOp) {
    Work work(op, prompt);
    work.batch->cancel();
    work.batch->deadline_ns = now_ns();
    work.submit_to(*tier);
    EXPECT_EQ(work.finish().outcomes(), all(4, cancelled));
  }
  EXPECT_EQ(tier->stats().cancelled, 4 * std::size(kEveryOp));
  expect_there(prompt[1]);
  expect_absent(prompt[3]);
}

TEST_P(TierContract, WhatIsCancelledMidwayIsWholeOrAbsent) {
  for (uint64_t round = 0; round < 10; ++round) {
    const auto prompt = entries(round, 16, 50'000);
    Work work(TierOp::put, prompt);
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 100));
      work.batch->cancel();
    });
    work.submit_to(*tier);
    const Outcomes outcomes = work.finish().outcomes();
    canceller.join();
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_TRUE(outcomes[i] == done || outcomes[i] == cancelled) << to_string(outcomes[i]);
      const bool there = client->whole_or_absent(prompt[i]);
      EXPECT_TRUE(there || outcomes[i] == cancelled);
    }
  }
}

// ---- How a batch ends ----

TEST_P(TierContract, WhoWaitsIsToldOnce) {
  const auto prompt = entries(1, 9, 3000);
  for (const TierOp op : kEveryOp) {
    std::atomic<int> told{0};
    std::atomic<bool> all_ended{false};
    Work work(op, prompt);
    work.batch->on_done = [&](TierBatch& batch) {
      bool ended = batch.finished();
      for (const TierItem& item : batch.items()) ended = ended && item.outcome == done;
      all_ended = ended;
      told.fetch_add(1);
    };
    work.submit_to(*tier);
    work.finish();
    const uint64_t give_up_ns = now_ns() + kPatienceNs;
    while (told.load() == 0 && now_ns() < give_up_ns) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(told.load(), 1);
    EXPECT_TRUE(all_ended.load());
    EXPECT_TRUE(work.batch->wait(0));
  }
}

// on_done runs without locks: it may begin the next batch.
TEST_P(TierContract, OneBatchMayBeginTheNext) {
  const auto prompt = entries(1, 3, 3000);
  Work reads(TierOp::get, prompt);
  Work writes(TierOp::put, prompt);
  std::atomic<bool> begun{false};
  writes.batch->on_done = [&](TierBatch&) {
    reads.submit_to(*tier);
    begun = true;
  };
  writes.submit_to(*tier);
  writes.finish();
  EXPECT_EQ(reads.finish().outcomes(), all(3, done));
  EXPECT_EQ(Bytes(reads.rooms[2].begin(), reads.rooms[2].begin() + 3000), prompt[2].bytes);
  while (!begun.load()) std::this_thread::yield();
}

TEST_P(TierContract, WhatABatchKeepsIsLetGoWithIt) {
  for (const TierOp op : {TierOp::put, TierOp::get}) {
    auto kept = std::make_shared<const Entry>(entry(1, 0, 4000));
    const std::weak_ptr<const void> watch = kept;
    Work work(op, std::span(kept.get(), 1));
    if (op == TierOp::put) work.batch->items()[0].source = kept->bytes;
    work.batch->keep = std::move(kept);
    work.submit_to(*tier);
    work.finish();
    EXPECT_FALSE(watch.expired());
    work.batch.reset();
    const uint64_t give_up_ns = now_ns() + kPatienceNs;
    while (!watch.expired() && now_ns() < give_up_ns) std::this_thread::yield();
    EXPECT_TRUE(watch.expired());
  }
}

TEST_P(TierContract, TheEndOfATierEndsWhatIsUnderWay) {
  std::vector<std::unique_ptr<Work>> works;
  std::atomic<size_t> told{0};
  const auto there = entries(1, 8, 60'000);
  ASSERT_EQ(client->put(there), all(8, done));
  for (uint64_t i = 0; i < 12; ++i) {
    works.push_back(i % 3 == 0 ? std::make_unique<Work>(TierOp::get, there)
                               : std::make_unique<Work>(TierOp::put, entries(i + 10, 8, 60'000)));
    works.back()->batch->on_done = [&](TierBatch&) { told.fetch_add(1); };
    works.back()->submit_to(*tier);
  }
  tier.reset();
  EXPECT_EQ(told.load(), works.size());
  for (const auto& work : works) {
    ASSERT_TRUE(work->batch->finished());
    for (const TierOutcome outcome : work->outcomes()) {
      EXPECT_TRUE(outcome == done || outcome == cancelled) << to_string(outcome);
    }
  }
}

TEST_P(TierContract, AFlushWaitsForWhatWasSubmittedBefore) {
  Work work(TierOp::put, entries(1, 16, 50'000));
  work.submit_to(*tier);
  EXPECT_TRUE(tier->flush(now_ns() + kPatienceNs));
  EXPECT_TRUE(work.batch->finished());
  work.finish();
  (void)tier->flush(0);  // Does not wait.
  EXPECT_TRUE(tier->flush(now_ns() + kPatienceNs));
}

// ---- Others, and later ----

TEST_P(TierContract, WhatWasPutIsThereForTheNextProcess) {
  if (!tier->traits().outlives_process) GTEST_SKIP() << "ends with its process";
  const auto prompt = entries(1, 6, 70'001);
  const Entry large = with_words(entry(2, 9, 1'500'000));
  EXPECT_EQ(client->put(std::span(prompt).first(3)), all(3, done));
  EXPECT_EQ(client->put(std::span(prompt).subspan(3), /*durable=*/true), all(3, done));
  EXPECT_EQ(client->put(large), done);
  EXPECT_EQ(client->remove(prompt[1]), done);
  for (int round = 0; round < 3; ++round) {
    open(kRoomy);
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (i == 1) {
        expect_absent(prompt[i]);
      } else {
        expect_there(prompt[i]);
      }
    }
    expect_there(large);
  }
}

TEST_P(TierContract, CapacityHoldsRightAfterOpening) {
  if (!tier->traits().outlives_process || tier->traits().capacity_bytes == 0) GTEST_SKIP();
  for (uint64_t prompt = 1; prompt <= 8; ++prompt) client->put(entries(prompt, 8, 200'000));
  if (!open_tight()) GTEST_SKIP();
  EXPECT_LE(tier->stats().used_bytes, tier->traits().capacity_bytes);
  for (uint64_t prompt = 1; prompt <= 8; ++prompt) {
    for (const Entry& one : entries(prompt, 8, 200'000)) client->whole_or_absent(one);
  }
  EXPECT_EQ(client->put(entry(99, 0, 10'000)), done);
  EXPECT_LE(tier->stats().used_bytes, tier->traits().capacity_bytes);
}

TEST_P(TierContract, WhatOnePutsTheOtherFinds) {
  if (!tier->traits().shared) GTEST_SKIP() << "one handle at a time";
  const auto second = place->open(kRoomy);
  ASSERT_NE(second, nullptr);
  Client other(*second);
  const auto prompt = entries(1, 6, 33'333);
  EXPECT_EQ(client->put(prompt), all(6, done));
  for (const Entry& one : prompt) {
    const Got got = other.get(one);
    EXPECT_EQ(got.outcome, done);
    EXPECT_EQ(got.bytes, one.bytes);
  }
  EXPECT_EQ(other.remove(prompt[3]), done);
  expect_absent(prompt[3]);
  EXPECT_EQ(other.put(prompt[3]), done);
  expect_there(prompt[3]);
}

}  // namespace stemma::test
