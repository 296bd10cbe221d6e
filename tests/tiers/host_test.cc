#include "stemma/tier/host_tier.h"
#include "tiers/hot_prefix.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

class HostPlace final : public TierPlace {
 public:
  explicit HostPlace(uint32_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    return make_host_tier({.capacity_bytes = capacity_bytes, .chunk_bytes = chunk_bytes_}).value();
  }
  bool keeps_words() const override { return false; }

 private:
  uint32_t chunk_bytes_;
};

TierCase host_case(const char* name, uint32_t chunk_bytes) {
  return {name, [chunk_bytes] { return std::make_unique<HostPlace>(chunk_bytes); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Host, TierContract,
                         ::testing::Values(host_case("Host", 16U << 10U),
                                           host_case("SmallChunks", 256)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Host, HotPrefix, ::testing::Values(host_case("Host", 16U << 10U)),
                         case_name);

}  // namespace stemma::test
