#include "sequence/relocator.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// A prompt that is being computed behind an idle sequence that was just dropped.
struct Behind {
  static EngineOptions engine_options() {
    EngineOptions options = full_engine();
    options.range_tokens = 1024;
    options.context_tokens = 8192;
    return options;
  }
  static SequenceOptions options() {
    SequenceOptions options = parts_options();
    options.range_threads = 0;
    options.attention_cell_ps = 5'000'000;
    return options;
  }
  Behind() {
    rig.put(3, tokens(2000, 2));
    turn = &rig.execute(prompt);
    rig.compute(*turn, 700);
    rig.clearer.release(3);
    turn->freed_below = 2000;
  }
  uint64_t move() {
    uint64_t spent_ns = 0;
    rig.relocator.move_down(spent_ns);
    return spent_ns;
  }
  std::string first(uint32_t n) {
    return rig.engine.right(SequenceId{turn->sequence}, std::span(turn->text.tokens).first(n));
  }

  PartsRig rig{engine_options(), options()};
  Text prompt = tokens(1500);
  TurnRecord* turn = nullptr;
};

TEST(Relocator, APromptGoesOnWhereItWasInLowerCells) {
  Behind it;
  const uint64_t loads = it.rig.calls(Call::load);
  EXPECT_GT(it.move(), 0U);
  EXPECT_EQ(it.rig.books.stats.relocated, 1U);
  EXPECT_GT(it.rig.calls(Call::load), loads);
  EXPECT_EQ(it.turn->computed, 700U);
  EXPECT_EQ(it.first(700), "");
  it.rig.compute(*it.turn);
  EXPECT_EQ(it.first(1500), "");
}

TEST(Relocator, ItMovesOnceForWhatWasDropped) {
  Behind it;
  (void)it.move();
  EXPECT_EQ(it.move(), 0U);
  EXPECT_EQ(it.rig.books.stats.relocated, 1U);
}

TEST(Relocator, WhatGainsLittleStaysWhereItIs) {
  Behind it;
  it.turn->freed_below = 1;
  it.turn->prompt_tokens = it.turn->promised_end = it.turn->computed + 1;
  EXPECT_EQ(it.move(), 0U);
  EXPECT_EQ(it.rig.books.stats.relocated, 0U);
}

TEST(Relocator, AFailedReadChangesNothing) {
  Behind it;
  it.rig.engine.faults.next(Call::save, Fault::before);
  (void)it.move();
  EXPECT_EQ(it.rig.books.stats.relocated, 0U);
  EXPECT_EQ(it.first(700), "");
  it.rig.compute(*it.turn);
  EXPECT_EQ(it.first(1500), "");
}

TEST(Relocator, ATurnThatCannotBePutBackIsLostAndServesNothing) {
  Behind it;
  it.rig.engine.faults.next(Call::load, Fault::before);
  (void)it.move();
  EXPECT_EQ(it.rig.books.stats.relocated, 0U);
  EXPECT_EQ(it.turn->phase, sequence::TurnPhase::failed);
  EXPECT_EQ(it.turn->computed, 0U);
}

}  // namespace
}  // namespace stemma::test
