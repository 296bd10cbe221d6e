// Where memories can be resumed, and how the planner decides between plans.
#include "sequence/planner.h"

#include <gtest/gtest.h>

#include <utility>

#include "support/plan_scene.h"

namespace stemma::test {
namespace {

using sequence::IdleSequence;
using sequence::price_of;
using sequence::resumable;
using sequence::worth_dropping;

// ---- Where a memory can be resumed --------------------------------------------------------------

uint32_t in_place(const Scene& scene, uint32_t end, uint32_t n) {
  return resumable(scene.traits, scene.computed(end), n, false);
}
uint32_t in_a_copy(const Scene& scene, uint32_t end, uint32_t n) {
  return resumable(scene.traits, scene.computed(end), n, true);
}

TEST(Resumable, FullAttentionAnywhere) {
  const Scene scene(Rewind::any);
  for (uint32_t n : {0U, 1U, 50U, 100U}) {
    EXPECT_EQ(in_place(scene, 100, n), n);
    EXPECT_EQ(in_a_copy(scene, 100, n), n);
  }
  EXPECT_EQ(in_place(scene, 100, 120), 100U);
}

TEST(Resumable, AWindowWhileItIsHeld) {
  const Scene scene(Rewind::window);  // Holds [76, 100) of a window of 16.
  for (bool copied : {false, true}) {
    EXPECT_EQ(resumable(scene.traits, scene.computed(100), 100, copied), 100U);
    EXPECT_EQ(resumable(scene.traits, scene.computed(100), 92, copied), 92U);
    EXPECT_EQ(resumable(scene.traits, scene.computed(100), 91, copied), 0U);
    EXPECT_EQ(resumable(scene.traits, scene.computed(100), 1, copied), 0U);
    EXPECT_EQ(resumable(scene.traits, scene.computed(20), 1, copied), 1U);  // All of it is held.
    EXPECT_EQ(resumable(scene.traits, {8, 30}, 10, copied), 0U);  // Shorter than the window.
  }
}

TEST(Resumable, ARecurrentStateAtItsEndOrAFewBefore) {
  const Scene exact(Rewind::exact);
  EXPECT_EQ(in_place(exact, 100, 100), 100U);
  EXPECT_EQ(in_place(exact, 100, 99), 0U);
  EXPECT_EQ(in_place(exact, 100, 500), 100U);
  const Scene bounded(Rewind::bounded);
  EXPECT_EQ(in_place(bounded, 100, 84), 84U);
  EXPECT_EQ(in_place(bounded, 100, 83), 0U);
}

TEST(Resumable, ACopyOfARecurrentStateOnlyAtItsSourcesEnd) {
  for (Rewind rewind : {Rewind::exact, Rewind::bounded}) {
    EXPECT_EQ(in_a_copy(Scene(rewind), 100, 100), 100U);
    EXPECT_EQ(in_a_copy(Scene(rewind), 100, 99), 0U);
  }
}

TEST(Resumable, NothingInTheMiddleOfSomething) {
  for (Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    EXPECT_EQ(resumable(Scene(rewind).traits, {0, 0, false}, 10, false), 0U);
    EXPECT_EQ(resumable(Scene(rewind).traits, {0, 50, false}, 10, false), 0U);
  }
}

// ---- What decides -------------------------------------------------------------------------------

TEST(Planner, NothingKnownMeansAnEmptySequence) {
  EXPECT_EQ(best(Scene().free(kFree)), "empty 0");
  EXPECT_EQ(Scene().free(kFree).plan().cost_ns, 1000 * 1'000'000U);
}

TEST(Planner, NoPlaceMeansNoPlan) {
  EXPECT_EQ(best(Scene()), "none");
  EXPECT_EQ(best(Scene().leased(kOther, 300, 300).segments(500)), "none");
}

TEST(Planner, LoadingThatIsDearerThanComputingIsNotUsed) {
  Scene scene(Rewind::exact, Fork::restore);
  scene.free(kFree).segments(500).checkpoint(500).state(500);
  EXPECT_EQ(best(scene), "state 0 500");
  scene.costs.load.byte_ps = 1'100'000;  // 1.1 ms for the bytes of a token.
  EXPECT_EQ(best(scene), "empty 0");
  // The checkpoint alone costs as much as 20 tokens: still cheaper than 250 tokens.
  EXPECT_EQ(best(scene.checkpoint(600).own(kOther, 700, 900)), "stay 1 600, checkpoint 600");
  Scene full(Rewind::any, Fork::copy);
  full.free(kFree).segments(500).state(500).leased(kOther, 300, 300);
  EXPECT_EQ(best(full), "state 0 500");
  full.costs.load.byte_ps = 1'100'000;
  EXPECT_EQ(best(full), "empty 0");
}

TEST(Planner, TheOwnConversationGoesOnWhereItIs) {
  for (Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    for (Fork fork : {Fork::shared, Fork::copy, Fork::restore, Fork::none}) {
      Scene scene(rewind, fork);
      scene.free(kFree).own(kOther, 900, 900).idle(2, 900, 900);
      EXPECT_EQ(best(scene), "stay 1 900");
      // Only the rest is left to pay for.
      EXPECT_EQ(scene.plan().cost_ns, 100 * 1'000'000U);
    }
  }
}

TEST(Planner, ACopySparesSomebodysTailWhereASequenceIsFree) {
  for (Fork fork : {Fork::shared, Fork::copy}) {
    Scene scene(Rewind::any, fork);
    scene.idle(kOther, 300, 900);
    EXPECT_EQ(best(scene), "stay 1 300");
    EXPECT_EQ(best(scene.free(kFree)), "fork 1>0 300");
  }
}

TEST(Planner, ALongConversationIsNotDestroyedForAToken) {
  for (bool restorable : {false, true}) {
    Scene scene(Rewind::any, Fork::restore);
    scene.restorable = restorable;
    scene.idle(kOther, 1, 900).free(2, price_of(scene.input(), 0, 10, false));
    EXPECT_EQ(best(scene), "empty 2") << restorable;
    scene.traits.fork = Fork::shared;
    EXPECT_EQ(best(scene), "fork 1>2 1");
  }
  // If the sequence must be emptied anyway, reuse what it has.
  Scene scene(Rewind::any, Fork::restore);
  EXPECT_EQ(best(scene.idle(kOther, 1, 900)), "stay 1 1");
}

TEST(Planner, TheCheapestOfThosePlansThatFit) {
  Scene scene;
  scene.free(kFree).leased(kOther, 300, 400).segments(500);
  const auto within = [&](uint32_t segments_to, bool forks) {
    return show(make_plan(scene.input(), [=](const Plan& plan) {
      return plan.segments_to <= segments_to && (forks || plan.base != Base::fork);
    }));
  };
  EXPECT_EQ(best(scene), within(500, true));
  EXPECT_EQ(within(500, true), "fork 1>0 300, segments 500");
  EXPECT_EQ(within(500, false), "empty 0, segments 500");
  EXPECT_EQ(within(0, true), "fork 1>0 300");
  EXPECT_EQ(within(0, false), "empty 0");
  EXPECT_EQ(show(make_plan(scene.input(), [](const Plan&) { return false; })), "none");
}

TEST(Planner, OfSeveralPlacesTheCheapestIsEmptied) {
  Scene scene;
  scene.free(2, 900).free(3, 100).free(4, 100).leased(5, 300, 300);
  EXPECT_EQ(best(scene), "fork 5>3 300");
  scene.live.clear();
  EXPECT_EQ(best(scene), "empty 3");
  EXPECT_EQ(best(scene.state(500)), "state 3 500");
}

TEST(Planner, TheSourceOfACopyIsNotItsPlace) {
  Scene scene;
  scene.idle(kOther, 300, 310).idle(2, 10, 700);
  EXPECT_EQ(best(scene), "stay 1 300");
  scene.live[0].can_stay = false;
  EXPECT_EQ(best(scene), "fork 1>2 300");
  scene.live.pop_back();
  EXPECT_EQ(best(scene), "none");
  // The source is cheapest to empty, and cannot be cut where segments would continue.
  Scene recurrent(Rewind::exact);
  recurrent.costs.load.byte_ps = 200'000;
  recurrent.idle(kOther, 300, 301).segments(500).checkpoint(500);
  recurrent.free(2, price_of(recurrent.input(), 0, 302, false));
  EXPECT_EQ(best(recurrent), "fork 1>2 300, segments 500, checkpoint 500");
}

TEST(Planner, TheOwnPastMakesPlaceBeforeSomebodyElses) {
  Scene scene;
  scene.own(kOther, 5, 400).leased(2, 300, 300);
  EXPECT_EQ(best(scene.free(3, price_of(scene.input(), 0, 400, false))), "fork 2>1 300");
}

// A place that is offered for free but has something to offer itself.
TEST(Planner, WhatASequenceHoldsIsWorthTheSameHoweverItIsOffered) {
  Scene scene(Rewind::any, Fork::shared);
  scene.restorable = false;
  scene.idle(kOther, 100, 900).free(kOther, 0);
  EXPECT_EQ(best(scene), "stay 1 100");
  EXPECT_EQ(best(scene.leased(2, 100, 100)), "stay 1 100");
}

TEST(Planner, SegmentsGoBehindWhatCanBeCutThere) {
  const auto with = [](Rewind rewind, uint32_t end) {
    Scene scene(rewind, Fork::restore);
    scene.own(kOther, 300, end).free(kFree).segments(500).checkpoint(500);
    // Moving is so expensive that 300 tokens less matter.
    scene.costs.load.byte_ps = 200'000;
    return best(scene);
  };
  EXPECT_EQ(with(Rewind::window, 400), "stay 1 300, segments 500, checkpoint 500");
  EXPECT_EQ(with(Rewind::bounded, 316), "stay 1 300, segments 500, checkpoint 500");
  EXPECT_EQ(with(Rewind::bounded, 317), "empty 0, segments 500, checkpoint 500");
  EXPECT_EQ(with(Rewind::exact, 300), "stay 1 300, segments 500, checkpoint 500");
  EXPECT_EQ(with(Rewind::exact, 301), "empty 0, segments 500, checkpoint 500");
}

TEST(Planner, ACallMoreMayCostMoreThanAFewTokens) {
  Scene scene(Rewind::exact, Fork::restore);
  scene.free(kFree).segments(500).checkpoint(192).checkpoint(194).checkpoint(400);
  EXPECT_EQ(best(scene), "empty 0, segments 400, checkpoint 400");
  scene.checkpoints.pop_back();
  EXPECT_EQ(best(scene), "empty 0, segments 194, checkpoint 194");
  scene.costs.load.call_ns = 3'000'000;
  EXPECT_EQ(best(scene), "empty 0, segments 192, checkpoint 192");
}

TEST(Planner, NoMoreThanTheLimitIsAvailable) {
  for (Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    Scene scene(rewind);
    scene.limit = 200;
    scene.free(kFree).own(kOther, 300, 300).idle(2, 200, 900).segments(500).state(500);
    scene.checkpoint(150).checkpoint(250).checkpoint(500);
    EXPECT_LE(scene.plan().available, 200U) << show(scene.plan());
    EXPECT_EQ(scene.plan().available, rewind == Rewind::any ? 200U : 150U);
    scene.live.clear();
    EXPECT_EQ(scene.plan().available, rewind == Rewind::any ? 200U : 150U);
    scene.saved.segments = 0;
    EXPECT_EQ(scene.plan().available, rewind == Rewind::any ? 200U : 0U);
  }
}

TEST(Planner, ALongerStateServesOnlyWhatCanBeTrimmed) {
  for (Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    Scene scene(rewind, Fork::restore);
    scene.free(kFree).state(200);
    scene.saved.state_longest = 400;
    scene.saved.state_longest_depth = 700;
    EXPECT_EQ(best(scene), rewind == Rewind::any ? "state 0 700, trim 400" : "state 0 200");
    scene.saved.state_depth = 0;
    EXPECT_EQ(best(scene), rewind == Rewind::any ? "state 0 700, trim 400" : "empty 0");
  }
}

TEST(Planner, ACopyOfARecurrentSequenceMovesItsState) {
  Scene scene(Rewind::exact, Fork::copy);
  scene.traits.bytes_per_token = 0;
  scene.free(kFree).leased(kOther, 5, 5);
  EXPECT_EQ(best(scene), "fork 1>0 5");
  scene.traits.checkpoint_bytes = 50'000'000;  // 10 ms.
  EXPECT_EQ(best(scene), "empty 0");
}

TEST(Planner, EqualCostsGoToWhatHasMoreAndThenToTheFirst) {
  Scene scene;
  scene.costs = {};
  scene.free(kFree).free(2).idle(3, 10, 20).idle(4, 20, 20).idle(5, 20, 20);
  EXPECT_EQ(best(scene), "stay 4 20");
}

TEST(Planner, LoadsCostWhatLoadingCostsAndNotWhatSavingDoes) {
  Scene scene;
  scene.free(kFree).segments(500);
  scene.costs.save = {.call_ns = 1'000'000'000, .byte_ps = 1'000'000};
  EXPECT_EQ(best(scene), "empty 0, segments 500");
  std::swap(scene.costs.save, scene.costs.load);
  EXPECT_EQ(best(scene), "empty 0");
}

// An engine like an H200 with a model of 8B parameters: loading 64 tokens a call is slower than
// computing them, and a large range is ten times as fast.
TEST(Planner, LargeRangesPayWhereSingleSegmentsDoNot) {
  struct Case {
    uint32_t range_tokens;
    uint32_t saved;
    const char* plan;
  };
  constexpr Case kCases[] = {{0, 500, "empty 0"},
                             {64, 500, "empty 0"},
                             {512, 500, "empty 0, segments 500"},
                             {512, 20, "empty 0"}};
  for (const Case& row : kCases) {
    Scene scene;
    scene.traits.bytes_per_token = 128 << 10;
    scene.costs = {
        .token_ns = 43'000, .cell_ps = 2'300, .load = {.call_ns = 3'000'000, .byte_ps = 22}};
    scene.traits.range_tokens = row.range_tokens;
    EXPECT_EQ(best(scene.free(kFree).segments(row.saved)), row.plan) << row.range_tokens;
  }
}

// The deeper a token is and the more lies beside it, the more it costs to compute, and the sooner
// loading pays.
TEST(Planner, ComputingCostsMoreTheDeeperAndTheMoreLiesBeside) {
  struct Case {
    uint32_t held;  // By an idle sequence; 200 words more are saved, and 10 behind them are new.
    uint64_t beside_cells;
    const char* plan;
  };
  constexpr Case kCases[] = {{1000, 0, "stay 1 1000"},
                             {8000, 0, "stay 1 8000, segments 8200"},
                             {1000, 7000, "stay 1 1000, segments 1200"}};
  for (const Case& row : kCases) {
    Scene scene;
    // 200 tokens: 20 ms and 1 ms for each 100 cells; loading them takes 80 ms.
    scene.costs = {.token_ns = 100'000, .cell_ps = 50'000, .load = {.call_ns = 20'000'000}};
    scene.prompt = row.held + 210;
    scene.limit = scene.prompt - 1;
    scene.beside_cells = row.beside_cells;
    scene.own(kOther, row.held, row.held).segments(row.held + 200);
    EXPECT_EQ(best(scene), row.plan) << row.beside_cells;
  }
}

// ---- Prices -------------------------------------------------------------------------------------

TEST(PriceOf, HalfOfWhatComputingTakesOrTwiceWhatLoadingTakes) {
  Scene scene(Rewind::any);
  scene.restorable = false;
  EXPECT_EQ(price_of(scene.input(), 0, 640, false), 320'000'000U);
  EXPECT_EQ(price_of(scene.input(), 600, 640, false), 20'000'000U);
  EXPECT_EQ(price_of(scene.input(), 640, 640, false), 0U);
  EXPECT_EQ(price_of(scene.input(), 700, 640, false), 0U);
  scene.restorable = true;
  // 10 segments: 50 us each, 650'000 bytes at 0.2 ns; 1 where 40 tokens are left of the last.
  EXPECT_EQ(price_of(scene.input(), 0, 640, false), 2 * (10 * 50'000 + 130'000));
  EXPECT_EQ(price_of(scene.input(), 600, 640, false), 2 * (50'000 + 8'200));
  EXPECT_EQ(price_of(scene.input(), 639, 641, false), 2 * (2 * 50'000 + 800));
  scene.costs.load.call_ns = 1'000'000'000;
  EXPECT_EQ(price_of(scene.input(), 0, 640, false), 320'000'000U);
  EXPECT_EQ(price_of(scene.input(), 0, 640, true), 32'000'000U);
}

TEST(PriceOf, AMemoryThatDoesNotGoBackNeedsItsCheckpointToo) {
  for (Rewind rewind : {Rewind::window, Rewind::bounded, Rewind::exact}) {
    const PlanInput input = Scene(rewind).input();
    EXPECT_EQ(price_of(input, 0, 64, false), 2 * (50'000 + 13'000 + 50'000 + 4'000));
  }
}

// ---- Idle sequences -----------------------------------------------------------------------------

TEST(WorthDropping, WhenComputingBesideItTakesLongerThanHavingItAgain) {
  struct Case {
    const char* what;
    IdleSequence idle;
    bool drops;
  };
  // A GPU: a cell costs 2.3 ns a token of a prompt and 33 ns a token of an answer, loading 32,768
  // tokens 95 ms.
  const Case cases[] = {
      {"a long prompt", {32'768, 32'768, 32'768, 8192, 0}, true},
      {"a short prompt", {32'768, 32'768, 32'768, 100, 0}, false},
      {"a short prompt and an answer", {32'768, 32'768, 32'768, 100, 256}, true},
      {"a few cells of its own", {32'768, 300, 32'768, 8192, 0}, true},
      {"nothing of its own", {32'768, 0, 32'768, 8192, 0}, false},
      {"nothing is saved", {32'768, 32'768, 0, 8192, 0}, false},
      {"nothing is saved, beside far more", {8192, 8192, 0, 60'000, 2000}, true},
      {"its end is not saved", {32'768, 32'768, 31'000, 4096, 0}, true},
      {"most is not saved", {32'768, 32'768, 10'000, 4096, 0}, false},
      {"not for a moment", {64, 64, 64, 1000, 0}, false},
  };
  for (const Case& row : cases) {
    Scene scene;
    scene.traits.bytes_per_token = 128 << 10;
    scene.traits.range_tokens = 1024;
    scene.costs = {.token_ns = 43'000,
                   .cell_ps = 2'300,
                   .answer_cell_ps = 33'000,
                   .load = {.call_ns = 30'000, .byte_ps = 22}};
    EXPECT_EQ(worth_dropping(scene.input(), row.idle), row.drops) << row.what;
    scene.costs.cell_ps = scene.costs.answer_cell_ps = 0;
    EXPECT_FALSE(worth_dropping(scene.input(), row.idle)) << "cells cost nothing, " << row.what;
  }
}

}  // namespace
}  // namespace stemma::test
