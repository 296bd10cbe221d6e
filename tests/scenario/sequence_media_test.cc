// Media in opaque sequences: compared item by item at their positions, reused whole or not at all.
// (What is available and what is left to process is judged by the rig after every execution.)
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// 90 positions: images at 11 (10 long) and 50 (18 long), a third item at 70 (7 long).
Text picture_book(uint8_t second, uint8_t third, uint32_t end_seed = 2) {
  return (tokens(80) + tokens(10, end_seed))
      .with(image(1, 11, 10))
      .with(image(second, 50, 18))
      .with(image(third, 70, 7));
}

std::vector<uint32_t> to_process(const Request& request) {
  const auto items = request.turn.media_to_process();
  return {items.begin(), items.end()};
}

TEST(SequenceMedia, SameMediaIsReusedAndChangedMediaEndsReuseAtItsStart) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    const bool any = kind.options.rewind == Rewind::any;
    SequenceRig rig(kind.options);
    rig.chat(picture_book(2, 3));
    rig.drain();
    EXPECT_EQ(rig.look(picture_book(2, 4)).matched_tokens, 70U);
    EXPECT_EQ(rig.look(picture_book(5, 3)).matched_tokens, 50U);
    EXPECT_EQ(rig.hit(picture_book(2, 4)), any ? 70U : 0U);
    EXPECT_EQ(rig.hit(picture_book(5, 3)), any ? 50U : 0U);
    EXPECT_EQ(rig.hit(picture_book(2, 3) + tokens(9, 4)), 90U);
    if (any) {
      Request request = rig.begin(picture_book(2, 4));
      rig.run(request);
      EXPECT_EQ(to_process(request), std::vector<uint32_t>{2});
      rig.finish(request);
    }
  }
}

TEST(SequenceMedia, TurnsWithMediaGoOnLikeOthers) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(picture_book(2, 3), tokens(20, 5), {.session = "a"});
    Request next = rig.begin(said + tokens(20, 6).with(image(9, 2, 9)), {.session = "a"});
    EXPECT_EQ(rig.run(next).reused_tokens, 110U);
    EXPECT_EQ(to_process(next), std::vector<uint32_t>{3}) << "the new picture only";
    rig.finish(next);
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(next.text + tokens(5, 7), {.session = "a"}).reused_tokens,
              kind.saves() ? 130U : 0U);
  }
}

TEST(SequenceMedia, NothingStopsOrEndsInsideAnItem) {
  SequenceOptions options = small_cache();
  options.interval_tokens = 8;
  options.least_tokens = 4;
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, options);
    rig.chat(picture_book(2, 3));
    for (const uint32_t stop : rig.stops) {
      EXPECT_FALSE(stop > 11 && stop < 21) << stop;
      EXPECT_FALSE(stop > 50 && stop < 68) << stop;
      EXPECT_FALSE(stop > 70 && stop < 77) << stop;
    }
    for (uint32_t n = 0; n <= 90; n += 3) {
      rig.hit(picture_book(2, 3), {.at_most = n});
      Request request = rig.begin(picture_book(2, 3), {.at_most = n});
      rig.execute(request);
      rig.compute(request);
      rig.finish(request);
    }
  }
}

TEST(SequenceMedia, PromptThatEndsInAnItemEvaluatesTheWholeItem) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text text = tokens(60).with(image(1, 45, 15));
    rig.chat(text);
    const SequenceReport again = rig.chat(text);
    EXPECT_LE(again.reused_tokens, 45U);
    if (kind.options.rewind == Rewind::any) {
      EXPECT_EQ(again.reused_tokens, 45U);
      EXPECT_EQ(again.outcome, Outcome::full_hit) << "its last unit is the picture";
    }
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(text).reused_tokens, kind.saves() ? 45U : 0U);
  }
}

TEST(SequenceMedia, PlaceholdersProveNothing) {
  SequenceRig rig;
  const Text words = tokens(60);
  const Text pictured = words.with(image(1, 30, 10));
  rig.chat(words, {.session = "text"});
  EXPECT_EQ(rig.hit(pictured), 30U) << "text does not pass for a picture";
  EXPECT_EQ(rig.look(pictured).reason, SequenceMiss::media);
  rig.chat(pictured, {.session = "picture", .reuse = Reuse::disabled});
  SequenceRig other;
  other.chat(pictured);
  EXPECT_EQ(other.hit(words + tokens(5, 2)), 30U) << "nor a picture for text";
  EXPECT_EQ(other.hit(words.with(image(2, 30, 10)) + tokens(5, 2)), 30U);
  SequenceRig first;
  first.chat(words.with(image(1, 0, 10)));
  EXPECT_EQ(first.hit(words), 0U);
  EXPECT_EQ(first.hit(words.with(image(2, 0, 10))), 0U);
}

TEST(SequenceMedia, EveryPartOfAnItemsIdentityCounts) {
  SequenceRig rig;
  const Text words = tokens(60);
  rig.chat(words.with(image(1, 30, 10)));
  EXPECT_EQ(rig.kept(words.with(image(1, 30, 10))), 60U);
  EXPECT_EQ(rig.kept(words.with(audio(1, 30, 10))), 30U);
  EXPECT_EQ(rig.kept(words.with(video(1, 30, 10))), 30U);
  EXPECT_EQ(rig.kept(words.with(image(1, 30, 11))), 30U);
  EXPECT_EQ(rig.kept(words.with(image(1, 29, 10))), 29U);
  EXPECT_EQ(rig.kept(words.with(media(MediaKind::image, 1, 30, 10, true))), 30U);
}

TEST(SequenceMedia, VideoIsComparedLikeAnyOtherItem) {
  SequenceRig rig;
  const Text words = tokens(60);
  rig.chat(words.with(video(1, 20, 20)));
  EXPECT_EQ(rig.kept(words.with(video(1, 20, 20))), 60U);
  EXPECT_EQ(rig.kept(words.with(video(2, 20, 20))), 20U);
}

TEST(SequenceMedia, OverlappingItemsAreOneUnit) {
  // Image [1, 3), sound [5, 7), image [6, 9); only 8 positions were computed.
  SequenceRig rig;
  const Text text = tokens(12).with(image(1, 1, 2)).with(audio(2, 5, 2)).with(image(3, 6, 3));
  Request request = rig.begin(text);
  rig.execute(request);
  rig.compute(request, 5);
  rig.finish(request);
  Request next = rig.begin(text);
  EXPECT_EQ(rig.execute(next), 5U);
  EXPECT_EQ(to_process(next), (std::vector<uint32_t>{1, 2})) << "one sound and one image remain";
  rig.compute(next);
  rig.finish(next);
  for (uint32_t n = 0; n < 12; ++n) {
    EXPECT_EQ(rig.hit(text, {.at_most = n}), n == 2 ? 1 : n > 5 && n < 9 ? 5 : n);
  }
}

TEST(SequenceMedia, BatchThatEndedInsideAnItemLeavesWhatLiesBeforeIt) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text text = tokens(80).with(image(1, 50, 20));
    Request request = rig.begin(text);
    rig.execute(request);
    rig.compute(request, 60);
    rig.finish(request);
    EXPECT_EQ(rig.look(text).matched_tokens, 50U);
    const SequenceReport report = rig.chat(text);
    EXPECT_EQ(report.reused_tokens,
              kind.options.rewind == Rewind::any ? 50U : report.reused_tokens);
  }
}

TEST(SequenceMedia, ImpossibleMediaIsRefused) {
  SequenceRig rig;
  const Text text = tokens(60);
  const std::vector<Text> bad = {
      text.with(image(1, 30, 0)),                        // Of no length.
      text.with(image(1, 55, 6)),                        // Beyond the prompt.
      text.with(image(1, 60, 1)),                        //
      text.with(image(1, 30, 5)).with(image(2, 20, 5)),  // Out of order.
      text.with(image(1, 0xFFFF'FFFF, 2)),               //
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(code(rig.cache.begin(rig.scope, bad[i])), Errc::invalid_argument) << i;
    EXPECT_EQ(code(rig.cache.lookup(rig.scope, bad[i])), Errc::invalid_argument) << i;
  }
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
}

}  // namespace
}  // namespace stemma::test
