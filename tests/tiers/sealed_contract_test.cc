// A sealed tier keeps the contract of tiers, whatever is below it.
#include "stemma/tier/disk_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/shared_tier.h"
#include "tier/disk/layout.h"
#include "tiers/hot_prefix.h"
#include "tiers/sealed_rig.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using Open = std::function<std::unique_ptr<Tier>(const std::string& path, uint64_t capacity)>;

class SealedPlace final : public TierPlace {
 public:
  SealedPlace(Open open, tier::SealedTierOptions options)
      : open_(std::move(open)), options_(std::move(options)) {}
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    // Each handle has a ring of its own, as each process has.
    return sealed(open_(directory_ / "store", capacity_bytes), open_keys(directory_ / "keys"),
                  options_);
  }
  bool keeps_words() const override { return false; }
  bool keeps_parents() const override { return false; }

 private:
  TemporaryDirectory directory_;
  Open open_;
  tier::SealedTierOptions options_;
};

std::unique_ptr<Tier> host_below(const std::string&, uint64_t capacity) {
  return make_host_tier({.capacity_bytes = capacity, .chunk_bytes = 16U << 10U}).value();
}
std::unique_ptr<Tier> disk_below(const std::string& path, uint64_t capacity) {
  return tier::disk::DiskTier::open(
             {.path = path, .capacity_bytes = capacity, .max_entry_bytes = 600 * tier::kPage})
      .value();
}
std::unique_ptr<Tier> shared_below(const std::string& path, uint64_t capacity) {
  return tier::shared::SharedTier::open({.path = path, .capacity_bytes = capacity}).value();
}

TierCase sealed_case(const char* name, Open open, tier::SealedTierOptions options = {}) {
  return {name, [=] { return std::make_unique<SealedPlace>(open, options); }};
}

// Parts of one entry each, and staging memory for a few.
const tier::SealedTierOptions kSmall{
    .threads = 3, .staging_bytes = 256U << 10U, .part_bytes = 1, .queue_items = 1U << 16U};
// Threads seal everything.
const tier::SealedTierOptions kQueued{.at_once_bytes = 0};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Sealed, TierContract,
                         ::testing::Values(sealed_case("Host", host_below),
                                           sealed_case("HostSmall", host_below, kSmall),
                                           sealed_case("HostQueued", host_below, kQueued),
                                           sealed_case("Disk", disk_below),
                                           sealed_case("DiskQueued", disk_below, kQueued),
                                           sealed_case("DiskSmall", disk_below, kSmall),
                                           sealed_case("Shared", shared_below)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Sealed, HotPrefix, ::testing::Values(sealed_case("Host", host_below)),
                         case_name);

}  // namespace stemma::test
