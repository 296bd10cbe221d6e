// Warm equals cold: however a prefix came into its sequence, decoding behind it gives the same as
// if everything had just been computed. Equal to the bit if batches are the same and no other
// sequence is in the context; otherwise equal up to rounding.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/llama/llama_model.h"
#include "llama/warm_rig.h"
#include "support/environment.h"

namespace stemma::test {
namespace {

using engine::MemoryKind;

struct Kind {
  const char* name;
  Architecture architecture;
  bool flash_attention = true;
  bool unified = true;
  uint32_t range_tokens = 0;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

LlamaOptions options_of(const Kind& kind) {
  LlamaOptions options = options_for(kind.architecture);
  options.flash_attention = kind.flash_attention;
  options.unified = kind.unified;
  options.range_tokens = kind.range_tokens;
  return options;
}

SequenceOptions only(Reuse reuse) {
  SequenceOptions options = WarmRig::still();
  options.reuse = reuse;
  return options;
}

class Warm : public ::testing::TestWithParam<Kind> {
 protected:
  bool states() const {
    return !GetParam().unified || GetParam().architecture == Architecture::recurrent;
  }
  bool full() const { return GetParam().architecture == Architecture::llama; }
  bool window() const { return GetParam().architecture == Architecture::window; }
  // The step must be reported for this many positions; if the memory has no such step, for none.
  static void expect_step(const Asked& asked, Step step, uint32_t tokens) {
    EXPECT_EQ(asked.step(step), tokens) << to_string(step);
    EXPECT_EQ(asked.report.failures, 0U);
  }

  const Text text = words(100);
  const std::vector<uint32_t> ends = {80};
};

TEST_P(Warm, StayingIsExact) {
  WarmRig rig(options_of(GetParam()));
  rig.expect_exact(rig.ask(text, {.session = "a"}));
  Text all = text;
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const uint32_t held = turn == 0 ? 103 : all.size() + 3;
    all = all + words(3, 1000 + all.size()) + words(20, 2 + turn);
    const Asked next = rig.ask(all, {.session = "a"});
    expect_step(next, Step::stay, held);
    rig.expect_exact(next);
  }
}

TEST_P(Warm, GoingBackToTheEndOfAMessageIsExact) {
  LlamaOptions options = options_of(GetParam());
  options.sequences = 1;  // Or else another one would get a copy.
  WarmRig rig(options);
  rig.ask(text, {.session = "a", .message_ends = ends});
  const Asked next = rig.ask(text.first(80) + words(30, 2), {.session = "a"});
  EXPECT_EQ(next.report.reused_tokens, 80U);
  if (full() || window()) expect_step(next, Step::trim, 80);
  if (states() && !full() && !window()) expect_step(next, Step::state, 80);
  if (!states() && !full() && !window()) expect_step(next, Step::checkpoint, 80);
  rig.expect_exact(next);
}

TEST_P(Warm, GoingBackIntoABatchIsNear) {
  WarmRig rig(options_of(GetParam()));
  rig.ask(text, {.session = "a"});
  const Asked next = rig.ask(text.first(77) + words(30, 2), {.session = "a"});
  EXPECT_EQ(next.report.reused_tokens, full() || window() ? 77U : 0U);
  rig.expect_near(next);
}

TEST_P(Warm, ForkOfAnIdleSequenceIsNear) {
  WarmRig rig(options_of(GetParam()), only(Reuse::live));
  const Asked first = rig.ask(text, {.session = "a", .message_ends = ends});
  // Both conversations go on: the first stays where it is.
  const Asked branch = rig.ask(first.text + words(30, 2), {.session = "b"});
  const Asked next = rig.ask(first.text + words(30, 3), {.session = "a"});
  rig.expect_near(branch);
  rig.expect_near(next);
  EXPECT_EQ(branch.step(Step::fork) + next.step(Step::fork), GetParam().unified ? 103U : 0U);
}

TEST_P(Warm, ForkOfARunningSequenceIsNear) {
  WarmRig rig(options_of(GetParam()), only(Reuse::live));
  Asked running = rig.start(text, {.session = "a"});
  const Asked branch = rig.ask(text + words(30, 2), {.session = "b"});
  if (GetParam().unified) expect_step(branch, Step::fork, 100);
  rig.expect_near(branch);
  rig.say(running, words(10, 3));
  const Asked second = rig.ask(running.text + words(5, 4), {.session = "c"});
  if (GetParam().unified) expect_step(second, Step::fork, 110);
  rig.expect_near(second);
  rig.say(running, words(10, 5));
  rig.expect_near(running);
  rig.finish(running);
}

TEST_P(Warm, BranchesOfATurnAreNear) {
  WarmRig rig(options_of(GetParam()));
  Asked trunk = rig.start(text);
  Asked one = rig.fork(trunk, words(40, 2));
  Asked two = rig.fork(trunk, words(40, 3));
  EXPECT_GE(one.turn.available(), GetParam().unified ? 100U : 99U);
  rig.say(trunk, words(40, 4));
  for (Asked* each : {&trunk, &one, &two}) {
    rig.expect_near(*each);
    rig.finish(*each);
  }
}

TEST_P(Warm, LoadingWhatWasSavedIsExact) {
  WarmRig rig(options_of(GetParam()), only(Reuse::saved));
  rig.ask(text, {.message_ends = ends});
  ASSERT_EQ(rig.cache.stats().free_sequences, 4U) << "nobody else is in the context";
  // At the end, and at the end of a message.
  for (const uint32_t n : {103U, 80U}) {
    const Asked next = rig.ask((text + words(3, 1100)).first(n) + words(30, 2));
    EXPECT_EQ(next.report.reused_tokens, n);
    expect_step(next, Step::state, states() ? n : 0);
    expect_step(next, Step::segments, states() ? 0 : n);
    expect_step(next, Step::checkpoint, states() || full() ? 0 : n);
    rig.expect_exact(next);
  }
}

TEST_P(Warm, LongConversationLoadedEveryTurnIsExact) {
  WarmRig rig(options_of(GetParam()), only(Reuse::saved));
  Text all = text;
  uint32_t before = 0;
  for (uint32_t turn = 0; turn < 6; ++turn) {
    const Asked asked = rig.ask(all);
    EXPECT_EQ(asked.report.reused_tokens, before);
    // Where the cells of a window lie, and so which ones a kernel takes together, depends on what
    // was there before. With flash attention it takes up to 256 one by one.
    const bool cells_matter = window() && (!GetParam().flash_attention || all.size() > 250);
    if (!cells_matter) {
      rig.expect_exact(asked);
    } else {
      rig.expect_near(asked);
    }
    before = asked.text.size();
    all = asked.text + words(20 + 13 * turn, 2 + turn);
  }
}

TEST_P(Warm, LoadingBesideOthersIsNear) {
  WarmRig rig(options_of(GetParam()), only(Reuse::saved));
  Asked other = rig.start(words(150, 7));
  rig.ask(text);
  rig.say(other, words(5, 8));
  const Asked next = rig.ask(text + words(3, 1100) + words(30, 2));
  EXPECT_EQ(next.report.reused_tokens, 103U);
  rig.expect_near(next);
  rig.say(other, words(5, 9));
  rig.expect_near(other);
  rig.finish(other);
}

// So little memory that saved entries are evicted, and contexts so small that sequences are too.
TEST_P(Warm, WhatEvictionLeavesIsNear) {
  LlamaOptions options = options_of(GetParam());
  options.context_tokens = options.unified ? 320 : 256;
  SequenceOptions small = WarmRig::still();
  WarmRig probe(options, small);
  const EngineTraits traits = probe.engine.traits();
  small.saved_bytes = 3 * (traits.fixed_bytes + traits.checkpoint_bytes) +
                      300 * (traits.bytes_per_token + 40) + 16'384;
  WarmRig rig(options, small);
  const Text system = words(70, 5);
  std::vector<Text> conversations;
  for (uint32_t c = 0; c < 6; ++c) conversations.push_back(system + words(20, 10 + c));
  uint64_t reused = 0;
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t c = 0; c < conversations.size(); ++c) {
      const uint32_t system_end[] = {70};
      const std::string session = std::to_string(c);
      const Asked asked =
          rig.ask(conversations[c], {.session = session, .message_ends = system_end});
      rig.expect_near(asked);
      reused += asked.report.reused_tokens;
      conversations[c] = asked.text + words(12, 100 * round + c);
      if (c % 2 == 0) rig.cache.drain({.evict = true});
    }
  }
  const SequenceStats stats = rig.cache.stats();
  EXPECT_GT(stats.segment_evictions + stats.state_evictions, 0U);
  EXPECT_GT(reused, 500U);
  rig.cache.check_invariants();
}

// STEMMA_LLAMA_SEEDS=n: how many random runs there are for each kind.
uint64_t seeds() { return from_environment("STEMMA_LLAMA_SEEDS", 2); }

// Every call of the engine fails or lies now and then. The answers are right all the same.
void run_with_faults(const Kind& kind, uint64_t seed, std::span<const Call> calls,
                     uint32_t per_mille, uint64_t& failures) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  LlamaOptions options = options_of(kind);
  options.context_tokens = options.unified ? 700 : 256;
  WarmRig rig(options);
  rig.engine.faults = FaultSchedule::random(seed, per_mille, calls);
  const Text system = words(70, 5);
  std::vector<Text> conversations;
  for (uint32_t c = 0; c < 6; ++c) conversations.push_back(system + words(20, 10 + c));
  for (uint32_t i = 0; i < 24; ++i) {
    const uint64_t dice = base::mix(seed * 1000 + i);
    Text& all = conversations[dice % 6];
    const std::string session = std::to_string(dice % 6);
    const uint32_t system_end[] = {70};
    Result<Asked> asked = rig.try_start(all, {.session = session, .message_ends = system_end});
    if (!asked) continue;
    failures += asked->report.failures;
    if (!rig.try_say(*asked, words(3, dice))) continue;
    rig.expect_near(*asked);
    if (!asked->turn.finish()) continue;
    // Half of the conversations continue, the others part from their earlier words.
    all = dice % 4 < 2 ? asked->text + words(10, dice + 1)
                       : all.first(all.size() - 5) + words(14, dice + 2);
    if (all.size() > 200) all = system + words(20, dice + 3);
    if (dice % 5 == 0) rig.cache.drain({.evict = true});
    rig.cache.check_invariants();
  }
  // Afterwards everything works.
  rig.engine.faults = FaultSchedule();
  for (Text& all : conversations) rig.expect_near(rig.ask(all));
  rig.ask(words(40, 99), {.session = "last"});
  EXPECT_EQ(rig.ask(words(40, 99) + words(3, 1040) + words(5, 98), {.session = "last"})
                .report.reused_tokens,
            43U);
  EXPECT_EQ(rig.cache.stats().broken_sequences, 0U);
}

TEST_P(Warm, AfterFailuresOfTheEngineItIsNear) {
  constexpr Call kCallsOfTheCache[] = {Call::clear, Call::trim, Call::copy,
                                       Call::size,  Call::save, Call::load};
  uint64_t failures = 0;
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    run_with_faults(GetParam(), seed, kCallsOfTheCache, 150, failures);
  }
  EXPECT_GT(failures, 0U);
}

TEST_P(Warm, WhenTheEngineLiesAboutWhatItHoldsItIsNear) {
  constexpr Call kHeld[] = {Call::held};
  uint64_t failures = 0;
  for (uint64_t seed = 1; seed <= seeds() / 2; ++seed) {
    run_with_faults(GetParam(), seed, kHeld, 100, failures);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Llama, Warm,
    ::testing::Values(Kind{"full", Architecture::llama}, Kind{"window", Architecture::window},
                      Kind{"recurrent", Architecture::recurrent},
                      Kind{"hybrid", Architecture::hybrid},
                      Kind{"full_ranges", Architecture::llama, true, true, 256},
                      Kind{"full_ranges_no_flash", Architecture::llama, false, true, 256},
                      Kind{"window_ranges", Architecture::window, true, true, 256},
                      Kind{"hybrid_ranges", Architecture::hybrid, true, true, 256},
                      Kind{"full_no_flash", Architecture::llama, false},
                      Kind{"window_no_flash", Architecture::window, false},
                      Kind{"full_split", Architecture::llama, true, false},
                      Kind{"window_split", Architecture::window, true, false},
                      Kind{"recurrent_split", Architecture::recurrent, true, false},
                      Kind{"hybrid_split", Architecture::hybrid, true, false}),
    [](const auto& kind) { return std::string(kind.param.name); });

// llama.cpp gives cells that a sequence's window has passed to others. So an idle sequence goes
// back less far than when its turn ended, and the next request may not be planned as if it did.
TEST(WindowModel, CellsThatOthersRecycledAreNotPlannedWith) {
  LlamaOptions options = options_for(Architecture::window);
  options.context_tokens = 4096;
  options.batch_tokens = 32;
  WarmRig rig(options);
  uint32_t seed = 100;
  for (uint32_t round = 0; round < 6; ++round) {
    const Text first = words(120, ++seed);
    rig.ask(first);
    // Enough for all cells that windows have.
    for (uint32_t other = 0; other < 2; ++other) rig.ask(words(400, ++seed));
    for (const uint32_t common : {90U, 110U}) {
      Text next = first;
      next.tokens.resize(common);
      rig.expect_near(rig.ask(next + words(10, ++seed)));
    }
  }
  for (const uint64_t failed : rig.cache.stats().failures) EXPECT_EQ(failed, 0U);
}

}  // namespace
}  // namespace stemma::test
