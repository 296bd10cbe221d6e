#include "sequence/notifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "key/key_chain.h"
#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// A rig with a listener.
struct HeardRig {
  explicit HeardRig(const EngineOptions& engine = full_engine(), bool words = false) {
    listener.words = words;
    SequenceOptions options = parts_options();
    options.listener = &listener;
    rig.emplace(engine, options);
  }
  PartsListener listener;
  std::optional<PartsRig> rig;
};

TEST(Notifier, NothingIsHandedOnWithoutAListener) {
  PartsRig rig;
  rig.put_away(tokens(200));
  const HandedOn done = rig.notifier.hand_on_all(0, ~uint64_t{0});
  EXPECT_TRUE(done.over);
  EXPECT_EQ(done.parts, 0U);
}

TEST(Notifier, ListenerHearsWhatWasSavedOfWhichWords) {
  HeardRig it;
  it.rig->put(0, tokens(100));
  const std::vector<uint8_t> bytes{1, 2, 3};
  {
    const Books::Unlocked unlocked(it.rig->books);
    it.rig->notifier.tell(0, {EntryKind::segment, {0, 64}, bytes}, ContentKey{});
  }
  ASSERT_EQ(it.listener.heard.size(), 1U);
  EXPECT_EQ(it.listener.heard[0].range, (Range{0, 64}));
  EXPECT_EQ(it.listener.heard[0].bytes, bytes);
  EXPECT_EQ(it.listener.prompts[0], tokens(100).tokens);
}

TEST(Notifier, HandsOnExactlyWhatWasSaved) {
  HeardRig it;
  it.rig->put_away(tokens(200));
  const HandedOn done = it.rig->notifier.hand_on_all(0, ~uint64_t{0});
  EXPECT_TRUE(done.over);
  ASSERT_EQ(it.listener.taken.size(), it.listener.heard.size());
  EXPECT_EQ(done.parts, 4U);
  // The deepest comes first: it is worth the least.
  std::ranges::reverse(it.listener.taken);
  for (size_t i = 0; i < it.listener.taken.size(); ++i) {
    EXPECT_EQ(it.listener.taken[i].bytes, it.listener.heard[i].bytes);
    EXPECT_EQ(it.listener.taken[i].chain, it.listener.heard[i].chain);
    EXPECT_EQ(it.listener.taken[i].seen, SeenAgain::leaving);
  }
}

// The places of these words, on the grid, among the parts that were taken.
std::vector<size_t> places(const HeardRig& it, const Text& text) {
  std::vector<key::MediaSpan> none;
  key::KeyChain chain(it.rig->scope, text.tokens, none, 64);
  std::vector<size_t> found;
  for (uint32_t depth = 64; depth <= text.size(); depth += 64) {
    const auto part =
        std::ranges::find(it.listener.taken, chain.at(depth), &PartsListener::Part::chain);
    found.push_back(static_cast<size_t>(part - it.listener.taken.begin()));
  }
  return found;
}

TEST(Notifier, WhatIsUsedMostIsHandedOnLast) {
  HeardRig it;
  const Text hot = tokens(128, 1);
  // It is saved first, and parts used once come in between.
  for (uint32_t i = 0; i < 5; ++i) {
    it.rig->put_away(hot + tokens(64, 10 + i));
    it.rig->put_away(tokens(128, 20 + i));
  }
  it.listener.taken.clear();
  const HandedOn done = it.rig->notifier.hand_on_all(0, ~uint64_t{0});
  ASSERT_EQ(done.parts, 2U + 5U + 10U);
  EXPECT_EQ(places(it, hot), (std::vector<size_t>{16, 15})) << "the root after what follows it";
  // Parts used equally often are ordered by their last use: the newest last.
  EXPECT_EQ(places(it, tokens(128, 24)), (std::vector<size_t>{14, 13}));
  EXPECT_LT(places(it, tokens(128, 20))[0], places(it, tokens(128, 21))[1]);
}

TEST(Notifier, CaptureInStepsKeepsItsOrderWhileOtherPromptsAreSaved) {
  HeardRig it;
  PartsRig& rig = *it.rig;
  const Text slow = tokens(256, 1);
  rig.put(0, slow);
  rig.books.queue.add(0, 256);
  rig.capturer.begin(0);
  for (uint32_t step = 0; !rig.capturer.run()->writer.over(); ++step) {
    ASSERT_TRUE(rig.capturer.go_on(rig.clock.now_ns()));
    rig.put_away(tokens(128, 10 + step));
  }
  ASSERT_EQ(rig.capturer.end().fate, CaptureFate::saved);
  it.listener.taken.clear();
  (void)rig.notifier.hand_on_all(0, ~uint64_t{0});
  const std::vector<size_t> at = places(it, slow);
  ASSERT_EQ(at.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(at, std::greater<>())) << "the beginning is worth most";
}

TEST(Notifier, WhatIsBroughtInIsWorthLessThanWhatItGoesOnFrom) {
  HeardRig elsewhere;
  HeardRig it;
  PartsRig& rig = *it.rig;
  const Text whole = tokens(256, 1);
  elsewhere.rig->put_away(whole);
  rig.put_away(tokens(128, 1));
  std::vector<SavedPart> brought;
  for (const PartsListener::Part& part : elsewhere.listener.heard)
    brought.push_back({part.kind, part.range, part.bytes, 0});
  ASSERT_EQ(ok(rig.intake.admit(rig.scope, whole, brought, {})).taken, 2U);
  it.listener.taken.clear();
  (void)rig.notifier.hand_on_all(0, ~uint64_t{0});
  const std::vector<size_t> at = places(it, whole);
  EXPECT_TRUE(std::ranges::is_sorted(at, std::greater<>())) << "the beginning is worth most";
}

TEST(Notifier, HandingOnInPartsKeepsTheOrder) {
  HeardRig it;
  for (uint32_t i = 0; i < 200; ++i) it.rig->put_away(tokens(64 * (1 + i % 5), 10 + i));
  const auto order = [&] {
    std::vector<ContentKey> chains;
    for (const PartsListener::Part& part : it.listener.taken) chains.push_back(part.chain);
    return chains;
  };
  it.listener.taken.clear();
  (void)it.rig->notifier.hand_on_all(0, ~uint64_t{0});
  const std::vector<ContentKey> all = order();
  ASSERT_GT(all.size(), 256U);
  it.listener.taken.clear();
  HandedOn done{.over = false};
  while (!done.over) done = it.rig->notifier.hand_on_all(done.next, 3000);
  EXPECT_EQ(order(), all);
}

TEST(Notifier, OnlyWhatIsWorthMostIsHandedOnToAStoreThatTakesLess) {
  HeardRig it;
  const Text hot = tokens(128, 1);
  for (uint32_t i = 0; i < 5; ++i) {
    it.rig->put_away(hot + tokens(64, 10 + i));
    it.rig->put_away(tokens(128, 20 + i));
  }
  const uint64_t all = it.rig->notifier.hand_on_all(0, ~uint64_t{0}).bytes;
  const uint64_t one = all / 17;
  for (const uint64_t most : {uint64_t{0}, one - 1, one, 4 * one, all - 1, all, ~uint64_t{0}}) {
    it.listener.taken.clear();
    const uint64_t from = it.rig->notifier.hand_on_from(most);
    const HandedOn done = it.rig->notifier.hand_on_all(from, ~uint64_t{0});
    EXPECT_EQ(done.bytes, std::min(all, most / one * one)) << most;
    if (done.parts < 2) continue;
    EXPECT_EQ(places(it, hot), (std::vector<size_t>{done.parts - 1, done.parts - 2}));
  }
}

TEST(Notifier, StatesThatAreUsedMostAreHandedOnLast) {
  HeardRig it(hybrid_state_engine());
  it.rig->put_away(tokens(100, 1));
  it.rig->put_away(tokens(90, 2));
  const auto use = [&](const Text& text) {
    Books& books = it.rig->books;
    sequence::Text read;
    ok(books.lexicon.read(text, read));
    const StateLease lease =
        ok(books.states->lease(books.states->find(it.rig->scope, read, text.size()).exact));
    (void)it.rig->notifier.hand_on_used(*books.states, EntryKind::state, lease);
    books.lexicon.release(read);
  };
  it.listener.want = false;
  use(tokens(100, 1));
  it.listener.want = true;
  it.listener.taken.clear();
  (void)it.rig->notifier.hand_on_all(0, ~uint64_t{0});
  std::erase_if(it.listener.taken, [](const auto& part) { return part.kind != EntryKind::state; });
  ASSERT_EQ(it.listener.taken.size(), 2U);
  EXPECT_EQ(it.listener.taken[0].range.end, 90U);
  EXPECT_EQ(it.listener.taken[1].range.end, 100U);
}

TEST(Notifier, HandingOnEndsBeforeItsLimitAndGoesOnThere) {
  HeardRig it;
  it.rig->put_away(tokens(200));
  HandedOn done = it.rig->notifier.hand_on_all(0, 1);
  EXPECT_FALSE(done.over);
  EXPECT_EQ(done.parts, 1U) << "a single part may be larger";
  uint32_t parts = done.parts;
  while (!done.over) {
    done = it.rig->notifier.hand_on_all(done.next, 1);
    parts += done.parts;
  }
  EXPECT_EQ(parts, 4U);
  EXPECT_EQ(it.listener.taken.size(), 4U) << "none twice";
}

TEST(Notifier, BytesAreReadOnlyIfTheListenerWantsThem) {
  HeardRig it;
  it.rig->put_away(tokens(200));
  it.listener.want = false;
  EXPECT_EQ(it.rig->notifier.hand_on_all(0, ~uint64_t{0}).bytes, 0U);
  EXPECT_TRUE(it.listener.taken.empty());
}

TEST(Notifier, LabelHasWordsIfTheListenerKeepsThem) {
  for (const bool words : {false, true}) {
    HeardRig it(full_engine(), words);
    it.rig->put(0, tokens(100));
    const auto& text = it.rig->books.text_of(0);
    key::KeyChain chain(it.rig->scope, text.all(), text.spans, 64);
    sequence::UseMoments use;
    const auto label = it.rig->notifier.label_of(chain, text, {64, 100}, kDefaultPriority, use);
    EXPECT_EQ(label.range, (Range{64, 100}));
    EXPECT_EQ(label.words.size(), words ? 36U : 0U);
    if (words) {
      EXPECT_EQ(label.words[0], tokens(100).tokens[64]);
    }
  }
}

TEST(Notifier, TailUnderACheckpointLeavesAtOnce) {
  HeardRig it(hybrid_engine());
  it.rig->put(0, tokens(100));
  it.rig->notifier.tell_of_tail(0, 100);
  ASSERT_EQ(it.listener.heard.size(), 1U);
  EXPECT_EQ(it.listener.heard[0].range, (Range{64, 100}));
  ASSERT_EQ(it.listener.taken.size(), 1U);
  EXPECT_EQ(it.listener.taken[0].seen, SeenAgain::leaving);
  EXPECT_EQ(it.listener.taken[0].bytes, it.listener.heard[0].bytes);
  it.rig->notifier.tell_of_tail(0, 64);
  EXPECT_EQ(it.listener.heard.size(), 1U) << "no segment goes on there";
}

TEST(Notifier, StatesThatMakeWayAreOffered) {
  HeardRig it(hybrid_state_engine());
  it.rig->put(0, tokens(100));
  it.rig->save(0);
  ASSERT_TRUE(it.listener.taken.empty());
  const uint64_t budget = it.rig->books.states->stats().budget_bytes;
  it.rig->notifier.make_way(*it.rig->books.states, EntryKind::state, it.rig->scope, 50, budget);
  ASSERT_EQ(it.listener.taken.size(), 1U);
  EXPECT_EQ(it.listener.taken[0].kind, EntryKind::state);
  EXPECT_EQ(it.listener.taken[0].seen, SeenAgain::leaving);
  EXPECT_EQ(it.listener.taken[0].bytes, it.listener.heard[0].bytes);
  EXPECT_EQ(it.rig->books.states->stats().entries, 0U);
}

}  // namespace
}  // namespace stemma::test
