#include "sequence/state_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine_kinds.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using sequence::load_state;
using sequence::RangeMover;
using sequence::save_state;

constexpr SequenceId kFirst{0};
constexpr SequenceId kSecond{1};
constexpr uint32_t kTokens = 100;
constexpr Range kAll{0, kTokens};

// A recurrent model with a state of this size, a sequence that holds something, and a mover.
struct Rig {
  explicit Rig(uint32_t state_bytes, uint64_t buffer_bytes = 8U << 20U) {
    EngineOptions options = hybrid_state_engine();
    options.state_bytes = state_bytes;
    engine = std::make_unique<FakeSequences>(options);
    mover = RangeMover::create({.buffer_bytes = buffer_bytes, .buffers = 2, .threads = 2});
    ok(engine->compute(kFirst, tokens(kTokens).tokens));
  }
  std::vector<uint8_t> saved(RangeMover* through) {
    std::vector<uint8_t> out(*engine->size(kFirst, Part::state, kAll));
    const auto written = save_state(through, *engine, kFirst, Part::state, kAll, out);
    EXPECT_TRUE(written);
    if (written) out.resize(*written);
    return out;
  }
  std::vector<uint32_t> take_all() {
    std::vector<uint32_t> taken;
    for (uint32_t buffer = mover->take(); buffer != RangeMover::kNone; buffer = mover->take()) {
      taken.push_back(buffer);
    }
    return taken;
  }
  std::unique_ptr<FakeSequences> engine;
  std::unique_ptr<RangeMover> mover;
};

TEST(StateCopy, WhatGoesThroughABufferIsWhatTheEngineWrote) {
  for (const uint32_t bytes : {64U, (1U << 20U) - 1, 1U << 20U, (5U << 20U) + 12'345}) {
    Rig rig(bytes);
    const std::vector<uint8_t> through = rig.saved(rig.mover.get());
    EXPECT_EQ(through, rig.saved(nullptr));
    ok(load_state(rig.mover.get(), *rig.engine, kSecond, Part::state, kAll, through));
    EXPECT_EQ(rig.engine->right(kSecond, tokens(kTokens).tokens), "") << bytes;
  }
}

TEST(StateCopy, WithoutAFreeBufferTheEngineWritesItself) {
  Rig rig(3U << 20U);
  const std::vector<uint8_t> direct = rig.saved(nullptr);
  const std::vector<uint32_t> taken = rig.take_all();
  EXPECT_EQ(rig.saved(rig.mover.get()), direct);
  ok(load_state(rig.mover.get(), *rig.engine, kSecond, Part::state, kAll, direct));
  for (const uint32_t buffer : taken) rig.mover->give_back(buffer, 0);
}

TEST(StateCopy, AStateThatIsLargerThanABufferGoesTheDirectWay) {
  Rig rig(3U << 20U, 2U << 20U);
  EXPECT_EQ(rig.saved(rig.mover.get()), rig.saved(nullptr));
}

// An engine claims to have written but has not, so the buffer has another's old bytes.
TEST(StateCopy, WhatOthersLeftInABufferIsNeverSaved) {
  for (const uint32_t bytes : {2U << 20U, 7U << 20U}) {
    Rig rig(bytes);
    // Both buffers have been used.
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t buffer = rig.mover->take();
      std::ranges::fill(rig.mover->bytes(buffer), uint8_t{0xAB});
      rig.mover->give_back(buffer, rig.mover->buffer_bytes());
    }
    ASSERT_TRUE(rig.mover->wait_for_buffer());
    std::vector<uint8_t> out(*rig.engine->size(kFirst, Part::state, kAll));
    rig.engine->faults = FaultSchedule({{Call::save, 0, Fault::lie_nothing}});
    const auto written = save_state(rig.mover.get(), *rig.engine, kFirst, Part::state, kAll, out);
    EXPECT_TRUE(written || written.error().code() == Errc::corrupt);
    EXPECT_TRUE(std::ranges::find(out, uint8_t{0xAB}) == out.end()) << bytes;
  }
}

TEST(StateCopy, BuffersAreGivenBackWhateverHappens) {
  Rig rig(3U << 20U);
  rig.engine->faults =
      FaultSchedule({{Call::save, 0, Fault::before}, {Call::load, 0, Fault::before}});
  std::vector<uint8_t> out(*rig.engine->size(kFirst, Part::state, kAll));
  EXPECT_FALSE(save_state(rig.mover.get(), *rig.engine, kFirst, Part::state, kAll, out));
  const std::vector<uint8_t> saved = rig.saved(nullptr);
  EXPECT_FALSE(load_state(rig.mover.get(), *rig.engine, kSecond, Part::state, kAll, saved));
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(rig.mover->wait_for_buffer());
    EXPECT_NE(rig.mover->take(), RangeMover::kNone);
  }
}

}  // namespace
}  // namespace stemma::test
