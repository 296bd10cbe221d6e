// The reference engine over tiers: logits are those of the model without any cache, bit by bit,
// also when all KV came back from a tier into an engine that has never computed it.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "tiers/engine_rig.h"

namespace stemma::test {
namespace {

class EngineRestore : public ::testing::TestWithParam<EngineMix> {
 protected:
  std::unique_ptr<EngineProcess> process(uint32_t blocks) {
    return std::make_unique<EngineProcess>(model, config, GetParam().memory(blocks), tier);
  }
  const paged::ModelConfig config = GetParam().config();
  const paged::Model model = make_model(config);
  FaultyTier tier{make_host_tier({.capacity_bytes = 64U << 20U}).value(), {}};
};

}  // namespace

TEST_P(EngineRestore, LogitsAreIdenticalAfterARestart) {
  uint64_t cold = 0;
  {
    const auto first = process(256);
    first->serve(engine_prompts());
    EXPECT_EQ(first->restored_tokens(), 0U);
    cold = first->computed_tokens();
  }
  const auto second = process(256);
  second->serve(engine_prompts());
  EXPECT_GE(second->restored_tokens(), 40U + 6 * 8U);
  EXPECT_LT(second->computed_tokens(), cold * 2 / 3);
}

TEST_P(EngineRestore, LogitsAreIdenticalOverAPoolThatIsTooSmall) {
  const auto only = process(24);
  for (int round = 0; round < 3; ++round) only->serve(engine_prompts());
  EXPECT_GT(only->restored_tokens(), 40U);
}

TEST_P(EngineRestore, LogitsAreIdenticalOverATierThatGoesWrong) {
  process(256)->serve(engine_prompts());
  tier.set_plan({.seed = 11, .fail = 15, .lose_answer = 15, .tear = 15, .flip = 15, .forget = 15});
  uint64_t restored = 0;
  for (int round = 0; round < 6; ++round) {
    const auto again = process(64);
    again->serve(engine_prompts());
    restored += again->restored_tokens();
  }
  EXPECT_GT(restored, 0U);
  EXPECT_GT(tier.faults().flipped + tier.faults().torn, 0U);
}

// A tier that serves wrong bytes as right ones breaks its contract; the comparison would see it.
TEST_P(EngineRestore, AWrongBitInRestoredBlocksWouldBeSeen) {
  process(256)->serve(engine_prompts());
  tier.set_plan({.seed = 2, .lie = 1000});
  EXPECT_NONFATAL_FAILURE(process(256)->serve(engine_prompts()), "");
}

INSTANTIATE_TEST_SUITE_P(Groups, EngineRestore, ::testing::ValuesIn(engine_mixes()),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace stemma::test
