#include "sequence/segment_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "retain/policies.h"
#include "support/segment_rig.h"

namespace stemma::test {
namespace {

using Ranges = std::vector<Range>;
using Wrong = ScriptedSaver::Wrong;

TEST(SegmentStore, WhatWasCapturedCanBeRestoredToTheWord) {
  for (uint32_t length : {1U, 15U, 16U, 17U, 32U, 50U}) {
    SegmentRig rig(8);
    const Text text = tokens(length);
    EXPECT_EQ(rig.capture(text), CaptureFate::saved);
    EXPECT_EQ(rig.restored(text + tokens(5, 9)), length);
    for (uint32_t n = 0; n <= length; ++n) {
      EXPECT_EQ(rig.reach(text, n), n);
      EXPECT_EQ(rig.restored(text, n), n);
      EXPECT_EQ(rig.restored(text.first(n) + tokens(9, 7)), n);
    }
  }
}

TEST(SegmentStore, OnlyWhatIsMissingIsSavedAndTailsAreAbsorbed) {
  SegmentRig rig(8);
  const Text text = tokens(70);
  EXPECT_EQ(rig.capture(text.first(40)), CaptureFate::saved);
  EXPECT_EQ(rig.last_saved, (Ranges{{0, 16}, {16, 32}, {32, 40}}));
  EXPECT_EQ(rig.used_slots(), 3U);
  EXPECT_EQ(rig.capture(text), CaptureFate::saved);
  EXPECT_EQ(rig.last_saved, (Ranges{{32, 48}, {48, 64}, {64, 70}}));
  EXPECT_EQ(rig.used_slots(), 5U);  // The tail of 8 is part of a whole segment now.
  EXPECT_EQ(rig.restored(text), 70U);
  // Again and again, as a turn goes on token by token.
  for (uint32_t n = 71; n < 80; ++n) {
    EXPECT_EQ(rig.capture(text + tokens(n - 70, 3)), CaptureFate::saved);
    EXPECT_EQ(rig.last_saved, (Ranges{{64, n}}));
    EXPECT_EQ(rig.used_slots(), 5U);
  }
}

TEST(SegmentStore, HeadsAreStoredOnce) {
  SegmentRig rig(20);
  const Text head = tokens(48);
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rig.capture(head + tokens(16, 2 + i)), CaptureFate::saved);
    EXPECT_EQ(rig.last_saved.size(), i == 0 ? 4U : 1U);
  }
  EXPECT_EQ(rig.used_slots(), 3U + 10U);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(rig.restored(head + tokens(16, 2 + i)), 64U);
}

TEST(SegmentStore, WhatIsThereIsNotSavedAgain) {
  SegmentRig rig(8);
  const Text text = tokens(40);
  EXPECT_EQ(rig.capture(text), CaptureFate::saved);
  for (uint32_t n : {40U, 39U, 33U, 32U, 31U, 16U, 1U}) {
    EXPECT_EQ(rig.capture(text.first(n)), CaptureFate::present) << n;
    EXPECT_TRUE(rig.last_saved.empty());
    EXPECT_EQ(rig.last_bytes, 0U);
  }
  EXPECT_EQ(rig.capture(Text()), CaptureFate::present);
  EXPECT_EQ(rig.used_slots(), 3U);
}

TEST(SegmentStore, BytesOfSegmentsAreWhatIsCounted) {
  SegmentRig rig(8);
  EXPECT_EQ(rig.capture(tokens(24)), CaptureFate::saved);
  const EngineTraits traits = rig.engine.traits();
  EXPECT_EQ(rig.last_bytes, 2 * traits.fixed_bytes + 24 * traits.bytes_per_token);
  EXPECT_EQ(rig.store->used_bytes(), 2 * rig.settings.segment_bytes);
}

TEST(SegmentStore, APartOfWhatIsHeldIsListedInSegments) {
  SegmentRig rig(8);
  const Text text = tokens(44);
  rig.capture(text);
  const SegmentStore::Hold held = rig.hold(text.first(41) + tokens(5, 9));
  ASSERT_EQ(held.usable, 41U);
  const auto pieces = rig.list(held, {5, 41});
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].saved, (Range{0, 16}));
  EXPECT_EQ(pieces[0].wanted, (Range{5, 16}));
  EXPECT_EQ(pieces[1].saved, (Range{16, 32}));
  EXPECT_EQ(pieces[1].wanted, (Range{16, 32}));
  EXPECT_EQ(pieces[2].saved, (Range{32, 44}));
  EXPECT_EQ(pieces[2].wanted, (Range{32, 41}));
  EXPECT_EQ(rig.store->size(pieces[0].slot), rig.settings.segment_bytes);
  EXPECT_TRUE(rig.list(held, {41, 41}).empty());
  EXPECT_EQ(rig.list(held, {16, 17}).size(), 1U);
}

// All of the prompt is wanted when nothing has to be computed, whatever comes behind it.
TEST(SegmentStore, AllOfAPromptCanBeHeld) {
  SegmentRig rig(20);
  const Text text = tokens(32);
  rig.capture(text);
  rig.capture(text + of({0, 0, 0}));  // A lookup of more than all looks like this.
  rig.capture(text.first(16) + of({0}));
  for (uint32_t n : {16U, 17U, 32U}) {
    const SegmentStore::Hold held = rig.hold(text.first(n));
    EXPECT_EQ(held.usable, n);
    EXPECT_EQ(held.matched, n);
    EXPECT_EQ(rig.restore(held, text), "");
  }
}

TEST(SegmentStore, MatchedIsWhatIsThereUsableWhatIsAllowed) {
  SegmentRig rig(8);
  EXPECT_FALSE(rig.hold(tokens(5)).scope_known);
  EXPECT_FALSE(rig.store->reach(rig.scope, tokens(5), 5).scope_known);
  rig.capture(tokens(40));
  const SegmentStore::Hold held = rig.hold(tokens(40) + tokens(3, 9), 20);
  EXPECT_EQ(held.usable, 20U);
  EXPECT_EQ(held.matched, 40U);
  EXPECT_TRUE(held.scope_known);
  const SegmentStore::Reach reach = rig.store->reach(rig.scope, tokens(40) + tokens(3, 9), 20);
  EXPECT_EQ(reach.usable, 20U);
  EXPECT_EQ(reach.matched, 40U);
  EXPECT_EQ(rig.store->reach(scope_of({.model = "other"}), tokens(40), 40).usable, 0U);
}

// ---- Media --------------------------------------------------------------------------------------

TEST(SegmentStore, MediaItemsAreComparedByContentAndNeverCut) {
  SegmentRig rig(20);
  const Text text = tokens(60).with(image(1, 20, 30));
  EXPECT_EQ(rig.capture(text), CaptureFate::saved);
  EXPECT_EQ(rig.restored(text), 60U);
  EXPECT_EQ(rig.restored(text, 59), 59U);
  EXPECT_EQ(rig.restored(text, 49), 20U);
  EXPECT_EQ(rig.restored(text, 50), 50U);
  EXPECT_EQ(rig.reach(tokens(60).with(image(2, 20, 30))), 20U);
  EXPECT_EQ(rig.reach(tokens(60)), 20U);
  EXPECT_EQ(rig.capture(text.first(50)), CaptureFate::present);
  EXPECT_EQ(rig.capture(tokens(60).with(image(2, 20, 30))), CaptureFate::saved);
}

TEST(SegmentStore, APromptThatEndsWithAnImageCanBeHeldWhole) {
  SegmentRig rig(20);
  const Text text = tokens(40).with(image(1, 10, 30));
  rig.capture(text);
  EXPECT_EQ(rig.restored(text), 40U);
  EXPECT_EQ(rig.restored(text, 39), 10U);
}

// ---- What goes wrong ----------------------------------------------------------------------------

TEST(SegmentStore, WhatWasSavedBeforeAFailureIsAsGoodAsAny) {
  const Text text = tokens(60);  // 4 segments.
  for (uint32_t what = 1; what < ScriptedSaver::kWrongs; ++what) {
    for (uint32_t at = 0; at < 4; ++at) {
      SegmentRig rig(8);
      ScriptedSaver saver(rig.engine, SegmentRig::kSource);
      saver.wrong = static_cast<Wrong>(what);
      saver.wrong_at = at;
      const bool large = saver.wrong == Wrong::size_is_too_large;
      EXPECT_EQ(rig.capture_with(saver, text),
                large ? CaptureFate::too_large : CaptureFate::failed);
      EXPECT_EQ(rig.restored(text), at * 16);
      EXPECT_EQ(rig.used_slots(), at);
      EXPECT_EQ(rig.capture(text), CaptureFate::saved);
      EXPECT_EQ(rig.last_saved.size(), 4 - at);
      EXPECT_EQ(rig.restored(text), 60U);
    }
  }
}

TEST(SegmentStore, AFailureToSaveATailLeavesTheOlderTail) {
  SegmentRig rig(8);
  const Text text = tokens(30);
  rig.capture(text.first(20));
  ScriptedSaver saver(rig.engine, SegmentRig::kSource);
  saver.wrong = Wrong::save_fails;
  saver.wrong_at = 0;
  EXPECT_EQ(rig.capture_with(saver, text), CaptureFate::failed);
  EXPECT_EQ(rig.restored(text), 20U);
}

TEST(SegmentStore, MoreThanTheStoreCanHaveIsTooLarge) {
  SegmentRig rig(4);
  rig.capture(tokens(10, 7));
  EXPECT_EQ(rig.store->capacity_tokens(), 64U);
  EXPECT_EQ(rig.capture(tokens(65)), CaptureFate::too_large);
  EXPECT_EQ(rig.restored(tokens(10, 7)), 10U);
  EXPECT_EQ(rig.capture(tokens(64)), CaptureFate::saved);
  EXPECT_EQ(rig.restored(tokens(64)), 64U);
}

TEST(SegmentStore, ABudgetForNothingIsNoStore) {
  SegmentStore::Settings settings;
  settings.segment_bytes = 1000;
  settings.budget_bytes = 1000;
  EXPECT_EQ(ok(SegmentStore::create(settings)), nullptr);
  settings.budget_bytes = 2500;
  EXPECT_NE(ok(SegmentStore::create(settings)), nullptr);
  settings.policy = "none such";
  EXPECT_EQ(code(SegmentStore::create(settings)), Errc::invalid_argument);
}

// All slots are in use by paths as different as possible, each with another last user.
TEST(SegmentStore, TheBudgetIsForTheIndexToo) {
  EXPECT_EQ(SegmentRig(10).store->stats().groups[0].capacity_blocks, 10U);
  for (const std::string_view policy : retain::policy_names()) {
    SCOPED_TRACE(policy);
    SegmentRig rig(10);
    rig.settings.policy = policy;
    // A policy's fixed memory is counted in full from a budget of 32 times as much on.
    rig.settings.budget_bytes = retain::most_bytes(policy).fixed != 0 ? 40U << 20U : 16U << 20U;
    rig.store = ok(SegmentStore::create(rig.settings));
    const uint32_t slots = rig.store->stats().groups[0].capacity_blocks;
    constexpr uint64_t kBooksOfASlot = 28;
    for (uint32_t i = 0; i < 2 * slots; ++i) {
      rig.retain.session = SessionId{i + 1};
      ASSERT_EQ(rig.capture(counting(16 * i, 16 * i + 1 + i % 16)), CaptureFate::saved);
    }
    EXPECT_EQ(rig.used_slots(), slots);
    const uint64_t slot_bytes = rig.settings.segment_bytes + kBooksOfASlot;
    const uint64_t bytes = slots * slot_bytes + rig.store->stats().index_bytes;
    EXPECT_LE(bytes, rig.settings.budget_bytes);
    EXPECT_GT(bytes, rig.settings.budget_bytes / 10 * 8);  // And it is not wasted.
  }
}

TEST(SegmentStore, WhenEverythingIsHeldNothingIsEvicted) {
  SegmentRig rig(4);
  const Text a = tokens(32, 1), b = tokens(32, 2);
  rig.capture(a);
  rig.capture(b);
  const SegmentStore::Hold first = rig.hold(a);
  {
    const SegmentStore::Hold second = rig.hold(b);
    EXPECT_EQ(rig.capture(tokens(16, 3)), CaptureFate::no_room);
    EXPECT_TRUE(rig.last_saved.empty());
    // Even evicting a whole path would not make enough room.
  }
  EXPECT_EQ(rig.capture(tokens(48, 3)), CaptureFate::no_room);
  EXPECT_EQ(rig.reach(a), 32U);
  EXPECT_EQ(rig.reach(b), 32U);
  EXPECT_EQ(rig.capture(tokens(32, 3)), CaptureFate::saved);
  EXPECT_EQ(rig.reach(b), 0U);
  EXPECT_EQ(rig.restore(first, a), "");
}

TEST(SegmentStore, APartTakesASlotAndWithoutOneWholeSegmentsAreHeld) {
  SegmentRig rig(4);
  const Text text = tokens(40);
  rig.capture(text);
  {
    const SegmentStore::Hold held = rig.hold(text);
    EXPECT_EQ(held.usable, 40U);
    EXPECT_EQ(rig.used_slots(), 4U);
    const SegmentStore::Hold second = rig.hold(text);
    EXPECT_EQ(second.usable, 32U);
    EXPECT_EQ(second.matched, 40U);
    EXPECT_EQ(rig.restore(second, text), "");
  }
  EXPECT_EQ(rig.used_slots(), 3U);
  EXPECT_EQ(rig.restored(text), 40U);
  EXPECT_EQ(rig.store->stats().evicted_blocks, 0U);
}

TEST(SegmentStore, WhatIsCapturedAgainWasUsedAgain) {
  SegmentRig rig(4);
  rig.capture(tokens(20, 1));
  rig.capture(tokens(20, 2));
  EXPECT_EQ(rig.capture(tokens(20, 1)), CaptureFate::present);
  EXPECT_EQ(rig.capture(tokens(32, 3)), CaptureFate::saved);
  EXPECT_EQ(rig.reach(tokens(20, 1)), 20U);
  EXPECT_EQ(rig.reach(tokens(20, 2)), 0U);
}

TEST(SegmentStore, WhatIsHeldWasUsedAgain) {
  SegmentRig rig(4);
  rig.capture(tokens(20, 1));
  rig.capture(tokens(20, 2));
  rig.clock.advance_ns(1000);
  rig.hold(tokens(20, 1));
  EXPECT_EQ(rig.capture(tokens(32, 3)), CaptureFate::saved);
  EXPECT_EQ(rig.reach(tokens(20, 1)), 20U);
  EXPECT_EQ(rig.reach(tokens(20, 2)), 0U);
}

TEST(SegmentStore, TenantsHaveTheirQuotas) {
  constexpr TenantId kSmall{1}, kLarge{2};
  SegmentRig probe(1);
  SegmentRig rig(20, {{kSmall, 3 * probe.settings.segment_bytes}});
  EXPECT_EQ(rig.capture(tokens(64, 1), kSmall), CaptureFate::no_room);
  EXPECT_EQ(rig.capture(tokens(48, 1), kSmall), CaptureFate::saved);
  rig.scope = scope_of({.model = "m", .tenant_salt = "large"});
  EXPECT_EQ(rig.capture(tokens(200, 2), kLarge), CaptureFate::saved);
  EXPECT_EQ(rig.reach(tokens(200, 2)), 200U);
  const SegmentStore::Hold held = rig.store->hold(rig.scope, tokens(200, 2), 200, kLarge, {});
  EXPECT_EQ(held.usable, 200U);
  EXPECT_EQ(rig.restore(held, tokens(200, 2)), "");
}

// ---- Damage -------------------------------------------------------------------------------------

TEST(SegmentStore, DamagedBytesAreSeenWhenTheyAreRead) {
  SegmentRig rig(8);
  rig.capture(tokens(40));
  const SegmentStore::Hold held = rig.hold(tokens(40));
  const auto pieces = rig.list(held, {0, 40});
  const std::span<const uint8_t> bytes = ok(rig.store->read(pieces[1].slot));
  const_cast<uint8_t&>(bytes[bytes.size() - 1]) ^= 4;
  EXPECT_EQ(code(rig.store->read(pieces[1].slot)), Errc::corrupt);
  EXPECT_TRUE(rig.store->read(pieces[0].slot).has_value());
}

TEST(SegmentStore, ForgettingDropsASegmentAndAllThatFollow) {
  const Text text = tokens(70);
  for (uint32_t from : {0U, 1U, 15U, 16U, 40U, 64U, 69U}) {
    SegmentRig rig(20);
    rig.capture(text);
    rig.capture(text.first(20) + tokens(20, 5));
    rig.store->forget(rig.scope, text, from);
    EXPECT_EQ(rig.restored(text), std::max(from / 16 * 16, from < 16 ? 0U : 20U)) << from;
    EXPECT_EQ(rig.reach(text.first(20) + tokens(20, 5)), from < 16 ? 0U : 40U);
    EXPECT_EQ(rig.capture(text), CaptureFate::saved);
    EXPECT_EQ(rig.restored(text), 70U);
  }
}

// A prompt that used part of a bad segment and then differs must not find it again.
TEST(SegmentStore, ASegmentOfWhichAPartWasWantedIsForgottenToo) {
  for (uint32_t common : {17U, 20U, 31U}) {
    for (uint32_t length : {common + 1, 32U, 40U}) {
      SegmentRig rig(20);
      rig.capture(tokens(length));
      const Text prompt = tokens(common) + tokens(30, 9);
      ASSERT_EQ(rig.reach(prompt), std::min(common, length));
      rig.store->forget(rig.scope, prompt, 16);
      EXPECT_EQ(rig.reach(prompt), 16U) << common << " of " << length;
      EXPECT_EQ(rig.restored(tokens(length)), 16U);
    }
  }
  SegmentRig rig(20);
  const Text with_image = tokens(60).with(image(1, 20, 10));
  rig.capture(with_image);
  rig.store->forget(rig.scope, with_image.first(40) + tokens(5, 9), 33);
  EXPECT_EQ(rig.reach(with_image), 32U);
  rig.store->forget(rig.scope, tokens(60).with(image(2, 20, 10)), 16);
  EXPECT_EQ(rig.reach(with_image), 16U);
}

TEST(SegmentStore, WhatIsHeldOutlivesBeingForgotten) {
  SegmentRig rig(8);
  const Text text = tokens(40);
  rig.capture(text);
  {
    const SegmentStore::Hold held = rig.hold(text);
    rig.store->forget(rig.scope, text, 0);
    EXPECT_EQ(rig.reach(text), 0U);
    EXPECT_EQ(rig.capture(tokens(60, 2)), CaptureFate::saved);
    EXPECT_EQ(rig.restore(held, text), "");
    rig.store->drop_all();
    EXPECT_EQ(rig.restore(held, text), "");
  }
  EXPECT_EQ(rig.used_slots(), 0U);
}

TEST(SegmentStore, ScopesAreForgottenAlone) {
  SegmentRig rig(8);
  rig.capture(tokens(20));
  const Scope first = rig.scope;
  rig.scope = scope_of({.model = "other"});
  rig.capture(tokens(20));
  EXPECT_EQ(rig.used_slots(), 4U);
  rig.store->drop_scope(first);
  EXPECT_EQ(rig.used_slots(), 2U);
  EXPECT_EQ(rig.restored(tokens(20)), 20U);
}

// ---- At random ----------------------------------------------------------------------------------

// Texts that can part from each other anywhere.
class Texts {
 public:
  explicit Texts(uint32_t seed) : random_(seed) {}
  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  Text next() {
    Text text;
    for (uint32_t parts = 1 + dice(4); parts > 0; --parts) {
      text = text + tokens(1 + dice(25), 1 + dice(3));
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

uint32_t common(const Text& a, const Text& b) {
  const auto end =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return static_cast<uint32_t>(end.first - a.tokens.begin());
}

TEST(SegmentStore, WithRoomForAllTheLongestCommonBeginningIsFound) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SegmentRig rig(400);
    Texts texts(seed);
    std::vector<Text> saved;
    for (uint32_t step = 0; step < 60; ++step) {
      const Text text = texts.next();
      ScriptedSaver saver(rig.engine, SegmentRig::kSource);
      uint32_t there = 0;
      for (const Text& other : saved) there = std::max(there, common(text, other));
      ASSERT_EQ(rig.reach(text), there) << "seed " << seed << ", step " << step;
      ASSERT_EQ(rig.restored(text), there) << "seed " << seed << ", step " << step;
      if (texts.dice(4) == 0) {
        saver.wrong = static_cast<Wrong>(1 + texts.dice(ScriptedSaver::kWrongs - 1));
        saver.wrong_at = texts.dice(3);
      }
      const CaptureFate fate = rig.capture_with(saver, text);
      ASSERT_EQ(fate == CaptureFate::present, there == text.size());
      if (fate == CaptureFate::saved) saved.push_back(text);
      if (fate == CaptureFate::failed || fate == CaptureFate::too_large) {
        const auto whole = static_cast<uint32_t>(saver.wrong_at) + there / 16;
        saved.push_back(text.first(std::min(text.size(), whole * 16)));
      }
    }
    rig.store->check_invariants();
  }
}

TEST(SegmentStore, UnderPressureWhatIsFoundIsRight) {
  uint64_t restored = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SegmentRig rig(4 + seed);
    Texts texts(seed);
    std::vector<std::pair<SegmentStore::Hold, Text>> held;
    for (uint32_t step = 0; step < 300; ++step) {
      const Text text = texts.next();
      switch (texts.dice(6)) {
        case 0:
        case 1:
        case 2: rig.capture(text); break;
        case 3:
          if (held.size() < 3) held.emplace_back(rig.hold(text), text);
          break;
        case 4:
          if (!held.empty()) held.erase(held.begin());
          break;
        default: rig.store->forget(rig.scope, text, texts.dice(text.size())); break;
      }
      for (const auto& [hold, of_text] : held) {
        ASSERT_EQ(rig.restore(hold, of_text), "") << "seed " << seed << ", step " << step;
        restored += hold.usable;
      }
      ASSERT_LE(rig.used_slots(), 4 + seed);
    }
    rig.store->check_invariants();
  }
  EXPECT_GT(restored, 50'000U);
}

}  // namespace
}  // namespace stemma::test
