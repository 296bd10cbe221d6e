// A process, as tests of tiers model it: an opaque engine and its cache, over tiers that others use
// too.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "stemma/tier/host_tier.h"
#include "stemma/tier/sequence_tiers.h"
#include "support/numbers.h"
#include "support/sequence_rig.h"
#include "tiers/borrowed_tier.h"

namespace stemma::test {

// A conversation and its next turn.
inline const Text kTalk = tokens(200, 1);
inline const Text kNext = kTalk + tokens(30, 2);

inline std::unique_ptr<Tier> host_tier(uint64_t bytes = 16U << 20U) {
  HostTierOptions options;
  options.capacity_bytes = bytes;
  return ok(make_host_tier(options));
}

// A busy machine is not a late tier.
inline tier::StackOptions patient() {
  tier::StackOptions options;
  options.query_ns = options.load_ns = options.store_ns = 60 * kSecond;
  return options;
}

struct Process {
  using WritePolicy = tier::WritePolicy;

  Process(const EngineOptions& engine, Tier& shared, WritePolicy write = WritePolicy::write_through,
          const SequenceOptions& options = small_cache())
      : Process(engine, stack_of(shared, write), options) {}
  Process(const EngineOptions& engine, std::unique_ptr<tier::TierStack> over,
          const SequenceOptions& options = small_cache())
      : stack(std::move(over)),
        tiers(*stack,
              {.traits = FakeSequences(engine).traits(), .segment_tokens = options.segment_tokens}),
        rig(engine, heard_by(tiers, options)) {}

  static std::unique_ptr<tier::TierStack> stack_of(Tier& shared, WritePolicy write) {
    tier::StackOptions options = patient();
    options.levels.push_back({.tier = std::make_unique<Borrowed>(shared), .write = write});
    return ok(tier::TierStack::create(std::move(options)));
  }
  static SequenceOptions heard_by(SavedListener& listener, SequenceOptions options) {
    options.listener = &listener;
    return options;
  }

  // As a server does it: looks in the tiers, loads what they have, and answers.
  SequenceReport chat(const Text& text, const TurnOptions& options = {}) {
    last = look(text, options);
    ok(rig.cache.admit(rig.scope, text, last->parts(), options));
    rig.check("admit");
    return rig.chat(text, options);
  }
  std::shared_ptr<tier::Fetch> look(const Text& text, const TurnOptions& options = {}) {
    tier::FetchOptions how;
    how.message_ends = options.message_ends;
    how.have = rig.look(text, options).reused_tokens;
    how.saved_here = rig.cache.saved_tokens(rig.scope, text);
    uint32_t checkpoints[16];
    how.checkpoints_here =
        std::span(checkpoints).first(rig.cache.saved_checkpoints(rig.scope, text, checkpoints));
    std::shared_ptr<tier::Fetch> fetch = tiers.fetch(rig.scope, text, how);
    EXPECT_TRUE(fetch->wait(Clock::monotonic().now_ns() + 60 * kSecond));
    return fetch;
  }
  void flush() { EXPECT_TRUE(stack->flush(Clock::monotonic().now_ns() + 60 * kSecond)); }
  void settle() {
    rig.drain();
    flush();
  }

  std::unique_ptr<tier::TierStack> stack;
  tier::SequenceTiers tiers;
  SequenceRig rig;
  std::shared_ptr<tier::Fetch> last;
};

}  // namespace stemma::test
