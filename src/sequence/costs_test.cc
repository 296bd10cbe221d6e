// What is learned from measurements, and what follows from it.
#include "sequence/costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace stemma::test {
namespace {

using sequence::calls_for;
using sequence::CostMeter;
using sequence::Costs;
using sequence::MoveCost;

// An H200 with a model of 8B parameters, about as measured there.
constexpr Costs kGpu{.token_ns = 43'000,
                     .cell_ps = 2'300,
                     .answer_cell_ps = 33'000,
                     .save = {.call_ns = 120'000, .byte_ps = 20},
                     .load = {.call_ns = 900'000, .byte_ps = 22}};
// Two cores of a CPU and a small model.
constexpr Costs kCpu{.token_ns = 2'600'000,
                     .cell_ps = 50'000,
                     .answer_cell_ps = 50'000,
                     .save = {.call_ns = 30'000, .byte_ps = 95},
                     .load = {.call_ns = 36'000, .byte_ps = 100}};
constexpr uint64_t kTokenBytes = 128 << 10;
// The costs of a cache that was given none.
constexpr Costs kStart{.token_ns = 1'000'000,
                       .save = {.call_ns = 50'000, .byte_ps = 200},
                       .load = {.call_ns = 50'000, .byte_ps = 200}};

// An engine with these costs, whose times vary and are sometimes far off.
class Engine {
 public:
  Engine(const Costs& truth, double noise, uint64_t seed)
      : truth_(truth), noise_(noise), random_(seed) {}

  void compute(CostMeter& meter, Range range, uint64_t beside) {
    uint64_t ns = truth_.compute(range, beside);
    if (range.end - range.begin == 1) ns = 5'000'000 + truth_.idle(range.end + beside, 0, 1);
    meter.computed(range, beside, measured(ns));
  }
  void save(CostMeter& meter, uint64_t calls, uint64_t bytes) {
    meter.saved(calls, bytes, measured(truth_.save.of(calls, bytes)));
  }
  void load(CostMeter& meter, uint64_t calls, uint64_t bytes) {
    meter.loaded(calls, bytes, measured(truth_.load.of(calls, bytes)));
  }
  uint64_t below(uint64_t n) { return random_() % n; }

 private:
  uint64_t measured(uint64_t ns) {
    const double dice = static_cast<double>(random_() % 2001) / 1000 - 1;
    const double late = random_() % 20 == 0 ? 10 : 1;  // Another process had the machine.
    return static_cast<uint64_t>(static_cast<double>(ns) * (1 + noise_ * dice) * late);
  }

  Costs truth_;
  double noise_;
  std::mt19937_64 random_;
};

void expect_near(uint64_t measured, uint64_t truth, double part, const char* what) {
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(truth),
              part * static_cast<double>(truth))
      << what;
}

// ---- Arithmetic ---------------------------------------------------------------------------------

TEST(Costs, ComputingGrowsWithDepthAndWithWhatLiesBeside) {
  const Costs costs{.token_ns = 1000, .cell_ps = 2000};
  EXPECT_EQ(costs.compute({0, 100}), 100 * 1000 + 2 * 100 * 50U);
  EXPECT_EQ(costs.compute({100, 200}), 100 * 1000 + 2 * 100 * 150U);
  EXPECT_EQ(costs.compute({100, 200}, 700), 100 * 1000 + 2 * 100 * 850U);
  EXPECT_EQ(costs.compute({0, 200}), costs.compute({0, 100}) + costs.compute({100, 200}));
  EXPECT_EQ(costs.compute({5, 5}, 100), 0U);
  EXPECT_EQ(costs.compute({6, 5}, 100), 0U);
  EXPECT_EQ(costs.idle(700, 100, 0), costs.compute({0, 100}, 700) - costs.compute({0, 100}));
}

TEST(Costs, AnAnswerHasAPriceOfItsOwnForCells) {
  EXPECT_EQ(kGpu.idle(1000, 0, 10), 10 * 1000 * 33U);
  EXPECT_EQ(kGpu.idle(1000, 10, 0), 10 * 1000 * 23U / 10);
  EXPECT_EQ(kGpu.idle(1000, 10, 10), kGpu.idle(1000, 10, 0) + kGpu.idle(1000, 0, 10));
}

TEST(Costs, NothingOverflows) {
  constexpr uint64_t kAll = ~uint64_t{0};
  const Costs costs{kAll, kAll, kAll, {kAll, kAll}, {kAll, kAll}};
  EXPECT_EQ(costs.compute({0, ~0U}, kAll), sequence::kMostNs);
  EXPECT_EQ(costs.idle(kAll, kAll, kAll), sequence::kMostNs);
  EXPECT_EQ(costs.load.of(kAll, kAll), sequence::kMostNs);
  EXPECT_EQ(costs.load.of(0, 0), 0U);
  CostMeter meter(costs);
  for (uint32_t i = 0; i < 3; ++i) {
    meter.loaded(1, 1, 1);
    meter.saved(1, kAll, 3'000'000'000'000);
    meter.computed({0, ~0U}, kAll, 1'000'000);
  }
  EXPECT_TRUE(meter.moves_measured());
  EXPECT_LE(meter.costs().load.call_ns, sequence::kMostNs);
  EXPECT_LE(meter.costs().save.byte_ps, sequence::kMostNs);
  EXPECT_LE(meter.costs().token_ns, sequence::kMostNs);
}

TEST(Costs, ACallMovesASegmentOrALargeRange) {
  EngineTraits traits{.segments = true};
  EXPECT_EQ(calls_for(traits, 64, {0, 0}), 0U);
  EXPECT_EQ(calls_for(traits, 64, {0, 1}), 1U);
  EXPECT_EQ(calls_for(traits, 64, {0, 640}), 10U);
  EXPECT_EQ(calls_for(traits, 64, {63, 65}), 2U) << "two segments are touched";
  traits.range_tokens = 32;
  EXPECT_EQ(calls_for(traits, 64, {0, 640}), 10U) << "never less than a segment";
  traits.range_tokens = 256;
  EXPECT_EQ(calls_for(traits, 64, {0, 640}), 3U);
  EXPECT_EQ(calls_for(traits, 64, {63, 65}), 1U);
  traits.segments = false;
  EXPECT_EQ(calls_for(traits, 64, {0, 640}), 1U) << "a state";
}

TEST(Costs, WhatIsSlowerToRestoreThanToComputeIsNotSaved) {
  EngineTraits traits{.segments = true, .bytes_per_token = kTokenBytes};
  Costs costs = kGpu;
  // One call for each 64 tokens takes 1.1 ms, as long as computing 25 of them; a large one hardly
  // more.
  EXPECT_TRUE(restores_faster(costs, traits, 64, {0, 8192}));
  costs.load.call_ns = 4'000'000;
  EXPECT_FALSE(restores_faster(costs, traits, 64, {0, 8192}));
  traits.range_tokens = 4096;
  EXPECT_TRUE(restores_faster(costs, traits, 64, {0, 8192}));
  EXPECT_FALSE(restores_faster(costs, traits, 64, {0, 64})) << "a call for a few tokens";
  costs.token_ns = costs.cell_ps = 0;
  costs.load.call_ns = 100;
  EXPECT_TRUE(restores_faster(costs, traits, 64, {0, 64})) << "in a moment";
  EXPECT_FALSE(restores_faster(costs, traits, 64, {0, 8192}));
  costs = kGpu;
  // The request that waits for the save pays for it, and every second save is useless.
  EXPECT_TRUE(worth_saving(costs, traits, 64, {0, 8192}));
  costs.save.call_ns = 200'000'000;
  EXPECT_FALSE(worth_saving(costs, traits, 64, {0, 8192}));
  EXPECT_TRUE(restores_faster(costs, traits, 64, {0, 8192})) << "with nobody waiting";
  EXPECT_FALSE(worth_saving(costs, traits, 64, {64, 64}));
  costs.token_ns = costs.cell_ps = 0;
  costs.save.call_ns = costs.load.call_ns = 100'000;
  EXPECT_TRUE(worth_saving(costs, traits, 64, {0, 64})) << "in a moment";
  EXPECT_FALSE(worth_saving(costs, traits, 64, {0, 8192}));
}

TEST(Costs, AMemoryThatDoesNotGoBackNeedsItsCheckpointToo) {
  EngineTraits traits{.rewind = Rewind::exact,
                      .segments = true,
                      .checkpoints = true,
                      .bytes_per_token = 1000,
                      .checkpoint_bytes = 20'000};
  const MoveCost cost{.call_ns = 100, .byte_ps = 1000};
  EXPECT_EQ(cost_of_moving(cost, traits, 64, {0, 128}, false), 2 * 100 + 128'000U);
  EXPECT_EQ(cost_of_moving(cost, traits, 64, {0, 128}, true), 3 * 100 + 148'000U);
  traits.segments = false;
  EXPECT_EQ(cost_of_moving(cost, traits, 64, {64, 128}, true), 100 + 148'000U) << "all of it";
}

// ---- Learning -----------------------------------------------------------------------------------

TEST(CostMeter, BelievesWhatItWasToldUntilItMeasures) {
  const CostMeter meter(kStart);
  EXPECT_EQ(meter.costs().token_ns, kStart.token_ns);
  EXPECT_EQ(meter.costs().load, kStart.load);
  EXPECT_EQ(meter.costs().save, kStart.save);
  EXPECT_EQ(meter.costs().cell_ps, 0U);
  EXPECT_FALSE(meter.moves_measured());
}

TEST(CostMeter, LearnsAnEngineWithinATenthFromMixedCalls) {
  for (const Costs& truth : {kGpu, kCpu}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      CostMeter meter(kStart);
      Engine engine(truth, 0.03, seed);
      for (uint32_t i = 0; i < 200; ++i) {
        const auto begin = static_cast<uint32_t>(engine.below(30) * 1024);
        const uint64_t beside = engine.below(4) * 16'384;
        engine.compute(meter, {begin, begin + 512 + static_cast<uint32_t>(engine.below(1500))},
                       beside);
        engine.compute(meter, {begin, begin + 1}, beside);
        engine.save(meter, 1 + engine.below(40), (1 + engine.below(64)) * 100'000);
        engine.save(meter, 1, engine.below(4096) * kTokenBytes);
        engine.load(meter, 1 + engine.below(40), (1 + engine.below(64)) * 100'000);
        engine.load(meter, 1, engine.below(4096) * kTokenBytes);
      }
      const Costs& costs = meter.costs();
      expect_near(costs.token_ns, truth.token_ns, 0.1, "token");
      expect_near(costs.cell_ps, truth.cell_ps, 0.1, "cell");
      expect_near(costs.answer_cell_ps, truth.answer_cell_ps, 0.1, "cell of an answer");
      expect_near(costs.save.call_ns, truth.save.call_ns, 0.1, "call of save");
      expect_near(costs.save.byte_ps, truth.save.byte_ps, 0.1, "byte of save");
      expect_near(costs.load.call_ns, truth.load.call_ns, 0.1, "call of load");
      expect_near(costs.load.byte_ps, truth.load.byte_ps, 0.1, "byte of load");
    }
  }
}

TEST(CostMeter, SavingAndLoadingAreLearnedApart) {
  CostMeter meter(kStart);
  for (uint32_t i = 1; i <= 20; ++i) {
    meter.saved(1, i * 1'000'000, 5'000'000 + i * 1'000'000);
    meter.loaded(1, i * 1'000'000, 70'000 + i * 20'000);
  }
  EXPECT_EQ(meter.costs().save, (MoveCost{5'000'000, 1000}));
  EXPECT_EQ(meter.costs().load, (MoveCost{70'000, 20}));
}

TEST(CostMeter, OneSizeThatIsFasterThanBelievedScalesBothFigures) {
  CostMeter meter(kStart);
  const uint64_t expected = kStart.load.of(16, 16'000'000);
  for (uint32_t i = 0; i < 8; ++i) meter.loaded(16, 16'000'000, expected / 5);
  EXPECT_EQ(meter.costs().load, (MoveCost{10'000, 40}));
}

TEST(CostMeter, OneSizeThatIsSlowerThanBelievedSaysNothingOfLargerOnes) {
  CostMeter meter(kStart);
  const uint64_t expected = kStart.load.of(16, 16'000'000);
  for (uint32_t i = 0; i < 8; ++i) meter.loaded(16, 16'000'000, 3 * expected);
  EXPECT_EQ(meter.costs().load, (MoveCost{550'000, 200}));
  EXPECT_EQ(meter.costs().load.of(16, 16'000'000), 3 * expected);
}

// A hybrid model on an H200: loading its checkpoints of 1.2 MB took 3.5 ms, and nothing else was
// loaded. The cache concluded that segments load more slowly than they compute, and saved none.
TEST(CostMeter, SmallCheckpointsThatLoadSlowlyDoNotKeepSegmentsFromBeingSaved) {
  CostMeter meter(kStart);
  EngineTraits hybrid;
  hybrid.segments = true;
  hybrid.range_tokens = 8192;
  hybrid.rewind = Rewind::exact;
  hybrid.bytes_per_token = 16'384;
  hybrid.checkpoint_bytes = 1'245'308;
  for (uint32_t i = 0; i < 16; ++i) meter.computed({i * 2048, (i + 1) * 2048}, 0, 25'000'000);
  for (uint32_t i = 0; i < 8; ++i) meter.saved(1, 1'245'308, 1'100'000);
  EXPECT_TRUE(restores_faster(meter.costs(), hybrid, 64, {0, 32'768}));
  for (uint32_t i = 0; i < 3; ++i) meter.loaded(1, 1'245'308, 3'600'000);
  EXPECT_TRUE(restores_faster(meter.costs(), hybrid, 64, {0, 32'768}));
  // Once large ranges were saved, the same speed is assumed for loading.
  for (uint32_t i = 0; i < 4; ++i) meter.saved(1, 134'000'000, 6'700'000);
  EXPECT_LT(meter.costs().load.byte_ps, 60U);
  EXPECT_GT(meter.costs().load.call_ns, 3'000'000U);
}

TEST(CostMeter, UntilSomethingWasLoadedItGuessesFromSaving) {
  CostMeter meter(kStart);
  const uint64_t expected = kStart.save.of(1, 1'000'000);
  for (uint32_t i = 0; i < 8; ++i) meter.saved(1, 1'000'000, expected / 10);
  EXPECT_EQ(meter.costs().load, (MoveCost{5000, 20}));
  for (uint32_t i = 0; i < 20; ++i) meter.saved(1, 1'000'000, expected * 10);
  EXPECT_EQ(meter.costs().load, meter.costs().save) << "it is the same link";
}

TEST(CostMeter, OneDirectionBelievesWhatTheOtherHasMeasured) {
  for (const bool saving : {true, false}) {
    CostMeter meter(kStart);
    const auto measure = [&](bool this_way, uint64_t bytes, uint64_t ns) {
      this_way ? meter.saved(1, bytes, ns) : meter.loaded(1, bytes, ns);
    };
    for (uint32_t i = 0; i < 4; ++i) measure(saving, 1'000'000, 2'000'000);
    for (uint32_t i = 1; i <= 20; ++i) measure(!saving, i * 10'000'000, 100'000 + i * 250'000);
    EXPECT_EQ(saving ? meter.costs().save : meter.costs().load, (MoveCost{1'975'000, 25}));
    EXPECT_EQ(saving ? meter.costs().load : meter.costs().save, (MoveCost{100'000, 25}));
  }
}

// Loads were slow once, and saves of one size took that over. When it is forgotten, both must be
// tried again.
TEST(CostMeter, WhatIsForgottenIsNotBelievedByTheOtherDirectionEither) {
  CostMeter meter(kStart);
  for (uint32_t i = 0; i < 4; ++i) meter.saved(1, 1'000'000, 300'000);
  for (uint32_t i = 1; i <= 20; ++i) meter.loaded(1, i * 10'000'000, i * 100'000'000);
  EXPECT_GT(meter.costs().load.byte_ps, 5'000U);
  for (uint32_t i = 0; i < 300; ++i) {
    meter.saved(1, 1'000'000, 300'000);
    meter.turn_ended();
  }
  EXPECT_LT(meter.costs().load.byte_ps, 500U);
  EXPECT_LT(meter.costs().save.byte_ps, 500U);
}

// A model of 12 layers of 2048 on an H200: its passes vary by a fifth, and all the cells that a
// prompt of 32,768 tokens reads make a token only a sixth more expensive. Decisions about idle
// sequences still need the price of a cell.
TEST(CostMeter, ACellHasItsPriceWherePassesVaryByAFifth) {
  constexpr Costs kSmallOnGpu{.token_ns = 24'000, .cell_ps = 174};
  uint32_t wrong = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    CostMeter meter(kStart);
    Engine engine(kSmallOnGpu, 0.2, seed);
    for (uint32_t prompt = 0; prompt < 8; ++prompt) {
      for (uint32_t begin = 0; begin < 32'768; begin += 2048) {
        engine.compute(meter, {begin, begin + 2048}, 0);
      }
    }
    const double times = static_cast<double>(meter.costs().cell_ps) / kSmallOnGpu.cell_ps;
    wrong += times < 0.33 || times > 2 ? 1 : 0;
  }
  EXPECT_LE(wrong, 12U) << "of 100";
}

TEST(CostMeter, OneBadMeasurementChangesNothing) {
  CostMeter meter(kStart);
  // The first of all, slow or fast, and then one among many.
  meter.saved(1, 1'000'000, 1);
  meter.computed({0, 512}, 0, 512 * 900'000'000ULL);
  meter.loaded(1, 1'000'000, 900'000'000'000);
  EXPECT_EQ(meter.costs().token_ns, kStart.token_ns);
  EXPECT_EQ(meter.costs().load, kStart.load);
  for (uint32_t i = 0; i < 20; ++i) {
    meter.computed({0, 512}, 0, 512 * 1'000'000);
    meter.loaded(1, 1'000'000, 250'000);
  }
  meter.computed({0, 512}, 0, 512 * 900'000'000ULL);
  meter.loaded(1, 1'000'000, 900'000'000'000);
  meter.loaded(1, 1'000'000, 1);
  EXPECT_EQ(meter.costs().token_ns, 1'000'000U);
  EXPECT_EQ(meter.costs().load, kStart.load);
}

TEST(CostMeter, NonsenseIsIgnored) {
  CostMeter meter(kStart);
  constexpr uint64_t kAll = ~uint64_t{0};
  for (uint32_t i = 0; i < 20; ++i) {
    meter.computed({0, 512}, 0, 0);
    meter.computed({0, 512}, 0, kAll);
    meter.computed({7, 7}, 0, 1000);
    meter.computed({9, 7}, 0, 1000);
    meter.computed({0, 4}, 0, 1);  // A few tokens say little.
    meter.saved(0, 1000, 1000);
    meter.saved(1, 1000, 0);
    meter.loaded(1, 1000, kAll);
  }
  EXPECT_EQ(meter.costs().token_ns, kStart.token_ns);
  EXPECT_EQ(meter.costs().save, kStart.save);
  EXPECT_EQ(meter.costs().load, kStart.load);
  EXPECT_FALSE(meter.moves_measured());
}

// A pass of a GPU takes 8 ms, and 43 us more for each token beyond 186. Conversations go on with a
// few tokens.
TEST(CostMeter, ShortPromptsBehindLongConversationsDoNotMakeDepthLookSlow) {
  CostMeter meter(kStart);
  for (uint32_t i = 1; i <= 30; ++i) {
    meter.computed({0, 2048}, 0, 2048 * 43'000);
    meter.computed({2048, 4096}, 0, 2048 * 43'000);
    meter.computed({i * 1000, i * 1000 + 1}, 0, 8'000'000);
    meter.computed({i * 1000, i * 1000 + 20}, 0, 8'000'000);
  }
  EXPECT_EQ(meter.costs().token_ns, 43'000U);
  EXPECT_EQ(meter.costs().cell_ps, 0U);
}

// Other processes take more and more of the machine while a conversation grows.
TEST(CostMeter, DepthNeverExplainsEverything) {
  CostMeter meter(kStart);
  for (uint32_t i = 1; i <= 30; ++i) {
    meter.computed({i * 100, i * 100 + 64}, 0, uint64_t{64} * i * i * 10'000);
  }
  EXPECT_GE(meter.costs().token_ns, 2'500U) << "a quarter of the fastest";
  EXPECT_GT(meter.costs().cell_ps, 0U);
}

// Batches of an engine whose attention is free: smaller ones take a little more per token.
TEST(CostMeter, AFiftiethIsTakenForNoise) {
  CostMeter meter(kStart);
  for (uint32_t i = 0; i < 40; ++i) {
    meter.computed({i * 64, i * 64 + 64}, 0, 64 * (1'000'000 + i * 400));
  }
  EXPECT_EQ(meter.costs().cell_ps, 0U);
}

TEST(CostMeter, FollowsAnEngineThatChanges) {
  CostMeter meter(kCpu);
  Engine engine(kGpu, 0.02, 7);
  for (uint32_t i = 0; i < 100; ++i) {
    engine.compute(meter, {i * 100, i * 100 + 512}, 0);
    engine.load(meter, 1, i % 10 * 10'000'000);
  }
  expect_near(meter.costs().token_ns, kGpu.token_ns, 0.1, "token");
  expect_near(meter.costs().load.byte_ps, kGpu.load.byte_ps, 0.1, "byte of load");
}

// A speed that was measured while the machine was busy would never be tried again.
TEST(CostMeter, WhatIsNotMeasuredForManyTurnsIsTriedAgain) {
  CostMeter meter(kStart);
  for (uint32_t i = 0; i < 5; ++i) meter.loaded(1, 1'000'000, 900'000'000);
  EXPECT_GT(meter.costs().load.of(1, 1'000'000), 800'000'000U);
  for (uint32_t i = 0; i < 255; ++i) meter.turn_ended();
  EXPECT_GT(meter.costs().load.of(1, 1'000'000), 800'000'000U);
  meter.turn_ended();
  EXPECT_EQ(meter.costs().load, kStart.load);
}

TEST(CostMeter, TheSameMeasurementsGiveTheSameCosts) {
  const auto learn = [] {
    CostMeter meter(kStart);
    Engine engine(kGpu, 0.5, 3);
    for (uint32_t i = 0; i < 50; ++i) engine.load(meter, 1, engine.below(1'000'000'000));
    return meter.costs().load;
  };
  EXPECT_EQ(learn(), learn());
}

}  // namespace
}  // namespace stemma::test
