// A SegmentStore over an engine with real contents: captures texts, and restores them elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "retain/policies.h"
#include "sequence/segment_store.h"
#include "support/cache_fixture.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma {

// How gtest shows them.
inline void PrintTo(const Range& range, std::ostream* out) {
  *out << "[" << range.begin << ", " << range.end << ")";
}
inline void PrintTo(CaptureFate fate, std::ostream* out) { *out << to_string(fate); }

}  // namespace stemma

namespace stemma::test {

using sequence::Captured;
using sequence::SavedSegment;
using sequence::Saver;
using sequence::SegmentStore;

// Saves from a sequence, and remembers what it saved. `wrong` gives the calls that fail, and how.
class ScriptedSaver final : public Saver {
 public:
  enum class Wrong : uint8_t {
    nothing,
    size_fails,
    size_is_nothing,
    size_is_too_large,
    save_fails,
    save_writes_nothing,
    save_says_too_much,
  };
  static constexpr uint32_t kWrongs = 7;

  ScriptedSaver(FakeSequences& engine, SequenceId sequence) : engine_(engine), id_(sequence) {}

  Result<uint64_t> size(Range range) override {
    const bool now = saved.size() == wrong_at;
    if (now && wrong == Wrong::size_fails) return Error(Errc::busy, "no size");
    if (now && wrong == Wrong::size_is_nothing) return uint64_t{0};
    STEMMA_TRY(const uint64_t bytes, engine_.size(id_, Part::segment, range));
    return now && wrong == Wrong::size_is_too_large ? bytes + 100'000 : bytes;
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    const bool now = saved.size() == wrong_at;
    saved.push_back(range);
    if (now && wrong == Wrong::save_fails) return Error(Errc::copy_failed, "not saved");
    if (now && wrong == Wrong::save_writes_nothing) return uint64_t{0};
    STEMMA_TRY(const uint64_t bytes, engine_.save(id_, Part::segment, range, out));
    return now && wrong == Wrong::save_says_too_much ? bytes + 1 : bytes;
  }

  std::vector<Range> saved;
  Wrong wrong = Wrong::nothing;
  size_t wrong_at = ~size_t{0};

 private:
  FakeSequences& engine_;
  SequenceId id_;
};

class SegmentRig {
 public:
  static constexpr uint32_t kTokens = 16;
  // The costs that the store assumes.
  static uint64_t index_bytes() { return 4 * kTokens + 179 + retain::most_bytes("lru").per_cell; }

  explicit SegmentRig(uint32_t slots, std::vector<TenantQuota> quotas = {})
      : engine({.sequences = 2, .context_tokens = 4096}) {
    settings.segment_tokens = kTokens;
    settings.segment_bytes =
        engine.traits().fixed_bytes + kTokens * engine.traits().bytes_per_token;
    settings.budget_bytes = (slots * (settings.segment_bytes + index_bytes()) * 64 + 62) / 63;
    settings.quotas = std::move(quotas);
    settings.clock = &clock;
    store = ok(SegmentStore::create(settings));
  }
  ~SegmentRig() {
    if (store != nullptr) store->check_invariants();
  }

  // Computes the text's tokens and saves them. With media the tokens stand for the computed words.
  CaptureFate capture(const Text& text, TenantId tenant = kNoTenant) {
    ScriptedSaver saver(engine, kSource);
    return capture_with(saver, text, tenant);
  }
  CaptureFate capture_with(ScriptedSaver& saver, const Text& text, TenantId tenant = kNoTenant) {
    ok(engine.clear(kSource));
    ok(engine.compute(kSource, text.tokens));
    clock.advance_ns(1000);
    const Captured captured = store->capture(scope, text, tenant, retain, saver);
    last_saved = saver.saved;
    last_bytes = captured.bytes;
    return captured.fate;
  }

  SegmentStore::Hold hold(const Text& text, uint32_t at_most = ~0U) {
    return store->hold(scope, text, std::min(at_most, text.size()), kNoTenant, {});
  }
  uint32_t reach(const Text& text, uint32_t at_most = ~0U) {
    return store->reach(scope, text, std::min(at_most, text.size())).usable;
  }
  std::vector<SavedSegment> list(const SegmentStore::Hold& hold, Range range) {
    std::vector<SavedSegment> pieces;
    ok(store->list(hold, range, pieces));
    return pieces;
  }
  // Loads the stored [0, usable) into an empty sequence. Returns "" if the contents are right.
  std::string restore(const SegmentStore::Hold& hold, const Text& text) {
    ok(engine.clear(kTarget));
    for (const SavedSegment& piece : list(hold, {0, hold.usable})) {
      const Result<std::span<const uint8_t>> bytes = store->read(piece.slot);
      if (!bytes) return bytes.error().to_string();
      const Result<void> loaded =
          engine.load(kTarget, Part::segment, piece.saved, piece.wanted, *bytes);
      if (!loaded) return loaded.error().to_string();
    }
    return engine.right(kTarget, text.first(hold.usable).tokens);
  }
  // How much of the text can be restored; checks that its contents are right.
  uint32_t restored(const Text& text, uint32_t at_most = ~0U) {
    const SegmentStore::Hold held = hold(text, at_most);
    EXPECT_EQ(restore(held, text), "");
    return held.usable;
  }
  uint32_t used_slots() const {
    const GroupStats group = store->stats().groups[0];
    return group.capacity_blocks - group.free_blocks;
  }

  static constexpr SequenceId kSource{0}, kTarget{1};
  ManualClock clock;
  FakeSequences engine;
  SegmentStore::Settings settings;
  std::unique_ptr<SegmentStore> store;
  Scope scope = scope_of({.model = "m"});
  Retain retain;
  std::vector<Range> last_saved;
  uint64_t last_bytes = 0;
};

}  // namespace stemma::test
