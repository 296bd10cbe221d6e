// The reference engine over a disk: logits are the model's own after the directory was closed and
// opened again.
#include <gtest/gtest.h>

#include "stemma/tier/disk_tier.h"
#include "support/temporary_directory.h"
#include "tiers/engine_rig.h"

namespace stemma::test {
namespace {

class DiskEngine : public ::testing::TestWithParam<EngineMix> {};

}  // namespace

TEST_P(DiskEngine, LogitsAreIdenticalAfterARestart) {
  const paged::ModelConfig config = GetParam().config();
  const paged::Model model = make_model(config);
  const TemporaryDirectory directory;
  uint64_t restored = 0;
  for (int start = 0; start < 2; ++start) {
    const auto tier =
        tier::disk::DiskTier::open({.path = directory / "store", .capacity_bytes = 64U << 20U})
            .value();
    EngineProcess process(model, config, GetParam().memory(256), *tier);
    process.serve(engine_prompts());
    restored = process.restored_tokens();
    EXPECT_EQ(restored == 0, start == 0);
  }
  EXPECT_GE(restored, 40U + 6 * 8U);
}

INSTANTIATE_TEST_SUITE_P(Groups, DiskEngine, ::testing::ValuesIn(engine_mixes()),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace stemma::test
