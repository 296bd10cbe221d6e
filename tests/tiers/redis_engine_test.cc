// The reference engine over a Redis: logits are the model's own when another process computed the
// KV.
#include <gtest/gtest.h>

#include "tiers/engine_rig.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

class RedisEngine : public ::testing::TestWithParam<EngineMix> {};

}  // namespace

TEST_P(RedisEngine, LogitsAreIdenticalInAnotherProcess) {
  if (server_program().empty()) GTEST_SKIP() << "no server here";
  static RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient(server.port()).command({"FLUSHALL"});
  const paged::ModelConfig config = GetParam().config();
  const paged::Model model = make_model(config);
  uint64_t restored = 0;
  for (int start = 0; start < 2; ++start) {
    const auto tier = open_redis(server.url());
    ASSERT_TRUE(ready(*tier));
    EngineProcess process(model, config, GetParam().memory(256), *tier);
    process.serve(engine_prompts());
    restored = process.restored_tokens();
    EXPECT_EQ(restored == 0, start == 0);
  }
  EXPECT_GE(restored, 40U + 6 * 8U);
}

INSTANTIATE_TEST_SUITE_P(Groups, RedisEngine, ::testing::ValuesIn(engine_mixes()),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace stemma::test
