// The shared tier keeps the contract: with many threads and with one, and where files cannot be
// linked.
#include <cerrno>

#include "stemma/tier/shared_tier.h"
#include "support/temporary_directory.h"
#include "tiers/hot_prefix.h"
#include "tiers/shared_rig.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

class SharedPlace final : public TierPlace {
 public:
  explicit SharedPlace(uint32_t threads, bool links = true) : threads_(threads) {
    if (links) return;
    files_->on_call = [](std::string_view call, const std::string&) {
      return call == "link" ? -EPERM : 0;
    };
  }
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    return open_shared({.path = directory_ / "store",
                        .capacity_bytes = capacity_bytes,
                        .threads = threads_,
                        .files = files_});
  }

 private:
  TemporaryDirectory directory_;
  uint32_t threads_;
  std::shared_ptr<FaultyFiles> files_ = std::make_shared<FaultyFiles>();
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Shared, TierContract,
    ::testing::Values(TierCase{"Eight", [] { return std::make_unique<SharedPlace>(8); }},
                      TierCase{"One", [] { return std::make_unique<SharedPlace>(1); }},
                      TierCase{"WithoutLinks",
                               [] { return std::make_unique<SharedPlace>(4, false); }}),
    case_name);
INSTANTIATE_TEST_SUITE_P(Shared, HotPrefix,
                         ::testing::Values(TierCase{
                             "Eight", [] { return std::make_unique<SharedPlace>(8); }}),
                         case_name);

}  // namespace stemma::test
