// A store of an engine's own keys over a Redis: reading back, forgetting, and a server that does
// nothing.
#include <algorithm>
#include <string>
#include <vector>

#include "capi/store/store.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

using capi::store::Op;
using capi::store::Store;

constexpr uint32_t kCount = 40;
constexpr size_t kValue = 3000;

class RedisStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "there is no redis-server on this machine";
    server = std::make_unique<RedisServer>();
    ASSERT_TRUE(server->wait_up());
    open();
  }
  void TearDown() override {
    if (store != nullptr) store->close(kNever);
  }
  void open() {
    if (store != nullptr) store->close(kNever);
    store.reset();
    auto tier = open_redis(server->url());
    ASSERT_TRUE(ready(*tier));
    tier::StackOptions under;
    under.levels.push_back({.tier = std::move(tier)});
    under.query_ns = under.load_ns = under.store_ns = kPatientMs * kMs;
    stack = tier::TierStack::create(std::move(under)).value();
    store = Store::create(*stack, nullptr, {}).value();
    mine = store->space(store->name_space("mine", 1, kValue).value()).value();
    other = store->space(store->name_space("other", 1, kValue).value()).value();
  }
  static std::vector<uint8_t> value(uint32_t i) {
    std::vector<uint8_t> bytes(kValue);
    for (size_t at = 0; at < kValue; ++at) bytes[at] = static_cast<uint8_t>(i * 41 + at * 3);
    return bytes;
  }
  uint32_t run(Op op, const std::shared_ptr<const tier::object::Space>& space,
               uint64_t timeout_ns = 10 * kPatientMs * kMs) {
    capi::store::Request request;
    request.op = op;
    request.space = space;
    request.timeout_ns = timeout_ns;
    memory.clear();
    for (uint32_t i = 0; i < kCount; ++i) {
      memory.push_back(op == Op::put ? value(i) : std::vector<uint8_t>(kValue));
      request.items.push_back({.number = i,
                               .key_at = i,
                               .key_size = 1,
                               .value = memory[i].data(),
                               .bytes = op == Op::put || op == Op::get ? kValue : 0});
      request.key_bytes.push_back(static_cast<uint8_t>(i));
    }
    const stemma_batch batch = store->submit(std::move(request)).value();
    stemma_store_finished finished{};
    EXPECT_TRUE(store->ledger().wait(batch, kNever, &finished).value());
    return finished.done;
  }
  bool is_right() const {
    for (uint32_t i = 0; i < kCount; ++i) {
      if (memory[i] != value(i)) return false;
    }
    return true;
  }

  std::unique_ptr<RedisServer> server;
  std::unique_ptr<tier::TierStack> stack;
  std::unique_ptr<Store> store;
  std::shared_ptr<const tier::object::Space> mine, other;
  std::vector<std::vector<uint8_t>> memory;
};

TEST_F(RedisStore, AnotherProcessFindsWhatWasPut) {
  EXPECT_EQ(run(Op::put, mine), kCount);
  EXPECT_EQ(run(Op::get, other), 0U);
  open();
  EXPECT_EQ(run(Op::contains, mine), kCount);
  EXPECT_EQ(run(Op::touch, mine), kCount);
  EXPECT_EQ(run(Op::get, mine), kCount);
  EXPECT_TRUE(is_right());
  EXPECT_EQ(run(Op::remove, mine), kCount);
  EXPECT_EQ(run(Op::get, mine), 0U);
}

TEST_F(RedisStore, ForgettingANamespaceLeavesTheOthers) {
  EXPECT_EQ(run(Op::put, mine), kCount);
  EXPECT_EQ(run(Op::put, other), kCount);
  const auto purged = store->forget(*mine, true, now_ns() + kPatientMs * kMs);
  ASSERT_EQ(purged.size(), 1U);
  EXPECT_TRUE(purged[0].purged.complete) << purged[0].purged.error;
  EXPECT_EQ(run(Op::get, mine), 0U);
  EXPECT_EQ(run(Op::get, other), kCount);
  EXPECT_TRUE(is_right());
}

TEST_F(RedisStore, AServerThatDoesNothingEndsBatchesByTheirDeadlines) {
  EXPECT_EQ(run(Op::put, mine), kCount);
  server->stop();
  const uint64_t before = now_ns();
  EXPECT_EQ(run(Op::get, mine, kImpatientMs * kMs), 0U);
  EXPECT_EQ(run(Op::put, other, kImpatientMs * kMs), 0U);
  EXPECT_LT(now_ns() - before, (2 * kImpatientMs + kSlowMs) * kMs);
  server->go_on();
  // A thread may still be waiting for an earlier request.
  EXPECT_TRUE(eventually([&] { return run(Op::get, mine) == kCount; }));
  EXPECT_TRUE(is_right());
}

}  // namespace
}  // namespace stemma::test
