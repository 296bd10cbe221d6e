#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

class RedisPlace final : public TierPlace {
 public:
  explicit RedisPlace(std::string url) : url_(std::move(url)) {}
  std::unique_ptr<Tier> open(uint64_t) override {
    auto tier = open_redis(url_);
    EXPECT_TRUE(ready(*tier)) << tier->problem();
    return tier;
  }

 private:
  std::string url_;
};

// Started once for all tests of this process; each begins with it empty.
TierCase one() {
  return {"One", []() -> std::unique_ptr<TierPlace> {
            if (server_program().empty()) return nullptr;
            static RedisServer server;
            if (!server.wait_up()) return nullptr;
            RawClient(server.port()).command({"FLUSHALL"});
            return std::make_unique<RedisPlace>(server.url());
          }};
}

TierCase cluster() {
  return {"Cluster", []() -> std::unique_ptr<TierPlace> {
            if (server_program().empty()) return nullptr;
            static RedisCluster cluster(3, false, 15'000);
            EXPECT_TRUE(cluster.formed());
            cluster.flush();
            return std::make_unique<RedisPlace>(cluster.url());
          }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Redis, TierContract, ::testing::Values(one(), cluster()), case_name);

}  // namespace stemma::test
