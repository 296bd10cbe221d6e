// Saved entries leave through a SavedListener and enter another cache through SequenceCache::admit.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "key/key_chain.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// Keeps everything it hears of, by key.
class Shelf final : public SavedListener {
 public:
  void saved(const Scope& scope, const Prompt& prompt, const SavedPart& part,
             const ContentKey& chain, const Retain& retain) noexcept override {
    (void)retain;
    std::vector<key::MediaSpan> spans;
    ASSERT_TRUE(key::find_media_spans(prompt, spans));
    ASSERT_GE(prompt.tokens.size(), part.range.end);
    key::KeyChain again(scope, prompt.tokens, spans, small_cache().segment_tokens);
    EXPECT_EQ(again.at(part.range.end), chain);
    kept_[{chain, part.kind}] = {part.range, {part.bytes.begin(), part.bytes.end()}};
    ++heard;
  }

  // All parts of a text, at any depth.
  std::vector<SavedPart> parts(const Scope& scope, const Text& text) const {
    std::vector<SavedPart> found;
    std::vector<key::MediaSpan> spans;
    const Prompt prompt = text;
    EXPECT_TRUE(key::find_media_spans(prompt, spans));
    key::KeyChain chain(scope, prompt.tokens, spans, small_cache().segment_tokens);
    for (uint32_t depth = 1; depth <= text.size(); ++depth) {
      const ContentKey key = chain.at(depth);
      for (const EntryKind kind :
           {EntryKind::segment, EntryKind::state, EntryKind::checkpoint, EntryKind::logits}) {
        const auto entry = kept_.find({key, kind});
        if (entry == kept_.end()) continue;
        found.push_back({kind, entry->second.range, entry->second.bytes});
      }
    }
    return found;
  }
  uint32_t heard = 0;

 private:
  struct Kept {
    Range range;
    std::vector<uint8_t> bytes;
  };
  std::map<std::pair<ContentKey, EntryKind>, Kept> kept_;
};

SequenceOptions heard_by(Shelf& shelf) {
  SequenceOptions options = small_cache();
  options.logits_bytes = 1U << 16U;
  options.listener = &shelf;
  return options;
}

const Text kTalk = tokens(200, 1);

TEST(SequenceSaved, AnotherProcessGoesOnWhereThisOneWas) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    Shelf shelf;
    SequenceRig here(kind.options, heard_by(shelf));
    here.chat(kTalk);
    here.drain();
    here.take_all_sequences();
    const uint32_t again = here.hit(kTalk + tokens(10, 2));
    EXPECT_EQ(shelf.heard == 0, again == 0);

    SequenceRig there(kind.options);
    EXPECT_EQ(there.hit(kTalk + tokens(10, 2)), 0U);
    const std::vector<SavedPart> parts = shelf.parts(there.scope, kTalk);
    const Admitted admitted = ok(there.cache.admit(there.scope, kTalk, parts));
    there.check("admit");
    EXPECT_EQ(admitted.refused, 0U);
    // Of two ends inside one segment, the further one contains the other.
    EXPECT_EQ(admitted.taken + admitted.present, parts.size());
    EXPECT_LE(admitted.present, 1U);
    EXPECT_EQ(there.hit(kTalk + tokens(10, 2)), again);
    // The rig judges the contents.
    EXPECT_EQ(there.chat(kTalk + tokens(10, 2)).reused_tokens, again);
    // Once more changes nothing.
    const Admitted twice = ok(there.cache.admit(there.scope, kTalk, parts));
    EXPECT_EQ(twice.taken, 0U);
    EXPECT_EQ(twice.present, parts.size());
  }
}

// The message ends inside a segment; the segment's other words belong to the first user only.
TEST(SequenceSaved, AnotherUserBehindTheSameMessageFindsItElsewhere) {
  const Text message = tokens(150, 1);
  const uint32_t ends[] = {150};
  const TurnOptions options{.message_ends = ends};
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    Shelf shelf;
    SequenceRig here(kind.options, heard_by(shelf));
    here.chat(message + tokens(60, 2), options);
    here.drain();
    here.take_all_sequences();
    const Text other = message + tokens(60, 3);
    const uint32_t again = here.hit(other, options);
    SequenceRig there(kind.options);
    ok(there.cache.admit(there.scope, other, shelf.parts(there.scope, other)));
    there.check("admit");
    // An engine that can rewind anywhere saves nothing where messages end: it saves whole segments,
    // or a state that ends with the first user's words.
    const EngineTraits& traits = there.engine.traits();
    const uint32_t whole = traits.segments ? 128U : 0U;
    const bool anywhere = traits.rewind == Rewind::any && again != 0;
    EXPECT_EQ(there.chat(other, options).reused_tokens, anywhere ? whole : again);
    EXPECT_TRUE(again == 150U || again == 0U) << again;
  }
}

TEST(SequenceSaved, LogitsComeBackToo) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  Request request = here.begin(kTalk);
  here.run(request);
  const std::vector<float> logits = {1.0F, 2.0F, 3.0F};
  ok(request.turn.attach_logits(200, logits));
  here.finish(request);
  SequenceOptions options = small_cache();
  options.logits_bytes = 1U << 16U;
  SequenceRig there(full_engine(), options);
  const std::vector<SavedPart> parts = shelf.parts(there.scope, kTalk);
  ok(there.cache.admit(there.scope, kTalk, parts));
  Request again = there.begin(kTalk, {.want_logits = true});
  EXPECT_EQ(std::vector<float>(again.turn.logits().begin(), again.turn.logits().end()), logits);
  there.abandon(again);
}

TEST(SequenceSaved, SegmentsBehindAGapAreLeftOut) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  here.chat(kTalk);
  here.drain();
  SequenceRig there(full_engine());
  std::vector<SavedPart> parts = shelf.parts(there.scope, kTalk);
  ASSERT_EQ(parts.size(), 4U) << "64, 128, 192 and 200";
  const SavedPart second = parts[1];
  parts.erase(parts.begin() + 1);
  const Admitted some = ok(there.cache.admit(there.scope, kTalk, parts));
  there.check("admit");
  EXPECT_EQ(some.taken, 1U);
  EXPECT_EQ(some.refused, 2U);
  EXPECT_EQ(there.kept(kTalk), 64U);
  // With the missing parts, and without those that are there.
  parts[0] = second;
  const Admitted rest = ok(there.cache.admit(there.scope, kTalk, parts));
  EXPECT_EQ(rest.taken, 3U);
  EXPECT_EQ(there.kept(kTalk), 200U);
  EXPECT_EQ(there.chat(kTalk).reused_tokens, 199U);
}

TEST(SequenceSaved, AnotherScopeFindsNothing) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  here.chat(kTalk);
  here.drain();
  EXPECT_TRUE(shelf.parts(ok(Scope::make({.model = "m", .tenant_salt = "other"})), kTalk).empty());
}

TEST(SequenceSaved, WhatHasNoPlaceIsRefusedAndChangesNothing) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  here.chat(kTalk);
  here.drain();
  SequenceRig there(full_engine());
  const std::vector<uint8_t> bytes(100);
  const std::string before = there.books();
  const std::vector<SavedPart> odd = {
      {EntryKind::state, {0, 64}, bytes},       // Full attention has segments.
      {EntryKind::checkpoint, {0, 64}, bytes},  // And no checkpoints.
      {EntryKind::logits, {0, 64}, bytes},      // None are kept here.
      {EntryKind::block, {0, 64}, bytes},       // No such thing here.
      {EntryKind::segment, {64, 128}, bytes},   // Nothing before it.
      {EntryKind::segment, {0, 1'000}, bytes},  // Beyond the prompt.
      {EntryKind::segment, {192, 200}, {}}};    // No bytes.
  const Admitted none = ok(there.cache.admit(there.scope, kTalk, odd));
  EXPECT_EQ(none.refused, odd.size());
  EXPECT_EQ(none.taken + none.present, 0U);
  EXPECT_EQ(there.books(), before);
  there.check("admit");
  const Token bad = 0x8000'0000U;
  EXPECT_EQ(there.cache.admit(there.scope, {{&bad, 1}, {}}, odd).error().code(),
            Errc::invalid_argument);
}

// Bytes that were changed on the way cannot be detected here. They are detected when they are
// loaded: then the answer is computed, and right.
TEST(SequenceSaved, SpoiltBytesAreFoundOutWhenTheyAreLoaded) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  here.chat(kTalk);
  here.drain();
  SequenceRig there(full_engine());
  const std::vector<uint8_t> rubbish(64, 0xEE);
  std::vector<SavedPart> parts = shelf.parts(there.scope, kTalk);
  parts[1].bytes = rubbish;
  ok(there.cache.admit(there.scope, kTalk, parts));
  const SequenceReport report = there.chat(kTalk);
  EXPECT_LE(report.reused_tokens, 64U);
  EXPECT_GE(report.failures, 1U);
}

TEST(SequenceSaved, NobodyIsAskedForMoreThanThereIsRoomFor) {
  Shelf shelf;
  SequenceRig here(full_engine(), heard_by(shelf));
  here.chat(kTalk);
  here.drain();
  SequenceOptions tiny = small_cache();
  tiny.saved_bytes = 64U << 10U;
  SequenceRig there(full_engine(), tiny);
  const Admitted admitted =
      ok(there.cache.admit(there.scope, kTalk, shelf.parts(there.scope, kTalk)));
  there.check("admit");
  EXPECT_LE(there.cache.stats().saved_bytes, tiny.saved_bytes);
  EXPECT_EQ(admitted.taken + admitted.refused, 4U);
}

}  // namespace
}  // namespace stemma::test
