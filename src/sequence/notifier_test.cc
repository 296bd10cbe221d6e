#include "sequence/notifier.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// A rig with somebody who listens.
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
  for (size_t i = 0; i < it.listener.taken.size(); ++i) {
    EXPECT_EQ(it.listener.taken[i].bytes, it.listener.heard[i].bytes);
    EXPECT_EQ(it.listener.taken[i].chain, it.listener.heard[i].chain);
    EXPECT_EQ(it.listener.taken[i].seen, SeenAgain::leaving);
  }
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
    const auto label = it.rig->notifier.label_of(chain, text, {64, 100}, kDefaultPriority);
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
