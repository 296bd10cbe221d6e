// A saved entry is handed on when it leaves or is used again: whole, under its name, and only then.
#include <map>
#include <utility>
#include <vector>

#include "key/key_chain.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// Remembers what was saved, and compares each entry that leaves with that.
class Witness final : public SavedListener {
 public:
  using Key = std::pair<ContentKey, EntryKind>;

  void saved(const Scope&, const Prompt& prompt, const SavedPart& part, const ContentKey& chain,
             const Retain& retain) noexcept override {
    const auto words = prompt.tokens.subspan(part.range.begin, part.range.end - part.range.begin);
    saved_[{chain, part.kind}] = {part.range,
                                  {part.bytes.begin(), part.bytes.end()},
                                  {words.begin(), words.end()},
                                  retain.priority,
                                  part.bytes};
  }
  uint32_t wants(EntryKind kind, const ContentKey& chain, SeenAgain seen) noexcept override {
    EXPECT_NE(kind, EntryKind::logits);
    if (seen == SeenAgain::used) {
      ++used[{chain, kind}];
      return 0;
    }
    ++asked;
    return wanting;
  }
  bool take(const KeptPart& part, uint32_t wanted) noexcept override {
    EXPECT_EQ(wanted, wanting);
    const auto entry = saved_.find({part.chain, part.kind});
    EXPECT_NE(entry, saved_.end());
    if (entry == saved_.end()) return false;
    EXPECT_EQ(part.range, entry->second.range);
    EXPECT_EQ(std::vector<uint8_t>(part.bytes.begin(), part.bytes.end()), entry->second.bytes);
    EXPECT_EQ(std::vector<uint32_t>(part.words.begin(), part.words.end()), entry->second.words);
    EXPECT_EQ(part.priority, entry->second.priority);
    taken[part.kind].push_back(part.range);
    return true;
  }
  bool keeps_words() const noexcept override { return true; }

  // Changes a byte of a segment where it lies.
  void damage(const ContentKey& chain) {
    const auto entry = saved_.find({chain, EntryKind::segment});
    ASSERT_NE(entry, saved_.end());
    *const_cast<uint8_t*>(entry->second.place.data()) ^= 1;
  }

  uint32_t wanting = 7;
  uint32_t asked = 0;
  std::map<EntryKind, std::vector<Range>> taken;
  std::map<Key, uint32_t> used;

 private:
  struct Saved {
    Range range;
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> words;
    Priority priority = 0;
    std::span<const uint8_t> place;
  };
  std::map<Key, Saved> saved_;
};

SequenceOptions handed_to(Witness& witness, uint64_t saved_bytes) {
  SequenceOptions options = small_cache();
  options.saved_bytes = saved_bytes;
  options.logits_bytes = 1U << 16U;
  options.listener = &witness;
  return options;
}

void chat_and_leave(SequenceRig& rig, const Text& text) {
  rig.chat(text, {.retain = {.priority = 40}});
  rig.take_all_sequences();
}

TEST(SequenceHandedOn, WhateverLeavesIsWholeAndHasItsName) {
  for (const EngineKind& kind :
       every_engine([](EngineOptions& options) { options.state_bytes = 1024; })) {
    SCOPED_TRACE(kind.name);
    Witness witness;
    SequenceRig rig(kind.options, handed_to(witness, 40U << 10U));
    for (uint32_t i = 0; i < 30; ++i) chat_and_leave(rig, tokens(150 + i, 10 + i));
    EXPECT_EQ(witness.taken.empty(), !kind.saves());
    if (!kind.saves()) continue;
    const EngineTraits traits = rig.engine.traits();
    EXPECT_EQ(witness.taken[EntryKind::segment].empty(), !traits.segments);
    EXPECT_EQ(witness.taken[EntryKind::state].empty(), traits.segments);
    EXPECT_EQ(witness.taken[EntryKind::checkpoint].empty(),
              !(traits.segments && traits.checkpoints));
  }
}

TEST(SequenceHandedOn, BytesAreLookedAtOnlyIfSomebodyWantsThem) {
  Witness witness;
  witness.wanting = 0;
  SequenceRig rig(full_engine(), handed_to(witness, 40U << 10U));
  for (uint32_t i = 0; i < 30; ++i) chat_and_leave(rig, tokens(150, 10 + i));
  EXPECT_GT(witness.asked, 0U);
  EXPECT_TRUE(witness.taken.empty());
}

TEST(SequenceHandedOn, AllThatStaysIsHandedOnInPartsAndStays) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    Witness witness;
    SequenceRig rig(kind.options, handed_to(witness, 4U << 20U));
    for (uint32_t i = 0; i < 3; ++i) chat_and_leave(rig, tokens(150, 10 + i));
    witness.taken.clear();  // Tails so far, which were kept nowhere.
    const HandedOn all = rig.cache.hand_on();
    EXPECT_TRUE(all.over);
    uint32_t parts = 0;
    for (const auto& [what, ranges] : witness.taken) parts += static_cast<uint32_t>(ranges.size());
    EXPECT_EQ(all.parts, parts);
    EXPECT_GE(all.parts, 3U);
    HandedOn part{.over = false};
    uint32_t sum = 0;
    for (uint32_t calls = 0; !part.over && calls <= all.parts; ++calls) {
      part = rig.cache.hand_on(part.next, 1);
      sum += part.parts;
      EXPECT_LE(part.parts, 1U);
    }
    EXPECT_TRUE(part.over);
    EXPECT_EQ(sum, all.parts);
    for (uint32_t i = 0; i < 3; ++i) EXPECT_NE(rig.kept(tokens(150, 10 + i)), 0U);
    rig.check("hand_on");
  }
}

// A caller that waits for its queue between two calls needs a queue for this many bytes, or for a
// single larger part.
TEST(SequenceHandedOn, NoCallHandsOnMoreThanWasAskedFor) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    Witness witness;
    SequenceRig rig(kind.options, handed_to(witness, 4U << 20U));
    for (uint32_t i = 0; i < 3; ++i) chat_and_leave(rig, tokens(150 + 40 * i, 10 + i));
    const HandedOn all = rig.cache.hand_on();
    for (const uint64_t most : {uint64_t{0}, uint64_t{1}, all.bytes / 4, all.bytes / 2}) {
      HandedOn part{.over = false};
      uint64_t sum = 0;
      for (uint32_t calls = 0; !part.over && calls <= all.parts; ++calls) {
        part = rig.cache.hand_on(part.next, most);
        EXPECT_TRUE(part.bytes <= most || part.parts == 1) << part.bytes << " of " << most;
        sum += part.bytes;
      }
      EXPECT_TRUE(part.over);
      EXPECT_EQ(sum, all.bytes);
    }
  }
}

TEST(SequenceHandedOn, DamagedBytesGoNowhere) {
  Witness witness;
  SequenceRig rig(full_engine(), handed_to(witness, 4U << 20U));
  const Text text = tokens(192, 1);
  chat_and_leave(rig, text);
  std::vector<key::MediaSpan> none;
  key::KeyChain chain(rig.scope, text.tokens, none, 64);
  witness.damage(chain.at(128));
  EXPECT_EQ(rig.cache.hand_on().parts, 2U);
  EXPECT_EQ(witness.taken[EntryKind::segment], (std::vector<Range>{{128, 192}, {0, 64}}));
}

TEST(SequenceHandedOn, AnotherCaptureOfTheSameWordsIsAUse) {
  Witness witness;
  SequenceRig rig(full_engine(), handed_to(witness, 4U << 20U));
  const Text text = tokens(192, 1);
  chat_and_leave(rig, text);
  EXPECT_TRUE(witness.used.empty());
  chat_and_leave(rig, text + tokens(100, 2));
  std::vector<key::MediaSpan> none;
  key::KeyChain chain(rig.scope, text.tokens, none, 64);
  ASSERT_EQ(witness.used.size(), 3U);
  for (const uint32_t depth : {64U, 128U, 192U})
    EXPECT_EQ((witness.used[{chain.at(depth), EntryKind::segment}]), 1U);
  // Also for a use that brings nothing new.
  chat_and_leave(rig, text);
  EXPECT_EQ((witness.used[{chain.at(64), EntryKind::segment}]), 2U);
}

}  // namespace
}  // namespace stemma::test
