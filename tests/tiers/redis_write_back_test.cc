// What a Redis holds after all of memory was handed on to it, which is more than it has room for.
#include <gtest/gtest.h>

#include <memory>

#include "stemma/tier/sequence_tiers.h"
#include "tiers/redis_rig.h"
#include "tiers/redis_server.h"
#include "tiers/sequence_process.h"

namespace stemma::test {
namespace {

using tier::WritePolicy;

// As a server does it at POST /cache/save.
void save_all(Process& process) {
  for (uint32_t round = 0; round < 3; ++round) {
    uint64_t next = process.rig.cache.hand_on_from(process.tiers.hand_on_bytes());
    for (HandedOn done{.over = false}; !done.over;) {
      done = process.rig.cache.hand_on(next, 8U << 20U);
      next = done.next;
      process.flush();
    }
    if (process.tiers.check_handed_on() == 0) return;
  }
}

// The server evicts by samples, and tells older from younger by the second.
TEST(RedisWriteBack, TheHottestPrefixIsThereAfterMoreWasHandedOnThanItKeeps) {
  RedisServer server({"--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru"});
  ASSERT_TRUE(server.wait_up());
  const std::unique_ptr<Tier> redis = open_redis(server.url());
  ASSERT_TRUE(eventually([&] { return redis->stats().room_bytes != 0; }));
  const Text hot = tokens(192, 1);
  EngineOptions engine = full_engine();
  engine.row_bytes = 1024;
  SequenceOptions options = small_cache();
  options.saved_bytes = 64U << 20U;
  {
    Process here(engine, *redis, WritePolicy::write_back, options);
    for (uint32_t i = 0; i < 240; ++i) {
      here.rig.chat(i % 12 == 0 ? hot + tokens(64, 100 + i) : tokens(128, 100 + i));
      here.rig.take_all_sequences();
    }
    here.flush();
    save_all(here);
    EXPECT_GT(redis->stats().put_bytes, 8U << 20U) << "nearly all that it keeps was put";
    EXPECT_LT(redis->stats().put_bytes, 16U << 20U) << "and not all of memory";
  }
  Process after(engine, *redis, WritePolicy::write_back, options);
  EXPECT_EQ(after.look(hot + tokens(5, 3))->stored_tokens(), 192U);
}

}  // namespace
}  // namespace stemma::test
