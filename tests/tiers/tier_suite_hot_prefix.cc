#include <memory>
#include <vector>

#include "tiers/hot_prefix.h"
#include "tiers/sequence_process.h"

namespace stemma::test {
namespace {

using tier::WritePolicy;

const Text kSystem = tokens(192, 1);
constexpr uint32_t kSystemEnd[] = {192};
const TurnOptions kAfterSystem{.message_ends = kSystemEnd};

// Engines that save so many bytes that a few conversations fill a tier.
std::vector<EngineKind> large_engines() {
  std::vector<EngineKind> kinds = every_engine([](EngineOptions& options) {
    options.row_bytes = 1024;
    options.state_bytes = 128U << 10U;
  });
  std::erase_if(kinds, [](const EngineKind& kind) { return !kind.saves(); });
  return kinds;
}

// 40 conversations behind the same prefix; then the process dies without notice, and another one
// begins. Returns how much of the prefix that one finds.
uint32_t stored_after(const EngineKind& kind, Tier& tier, WritePolicy write) {
  SequenceOptions options = small_cache();
  options.saved_bytes = kRoomy;
  {
    Process process(kind.options, tier, write, options);
    for (uint32_t i = 0; i < 40; ++i) {
      process.chat(kSystem + tokens(300, 10 + i), kAfterSystem);
      process.settle();
    }
  }
  Process after(kind.options, tier, write, options);
  return after.look(kSystem + tokens(5, 3), kAfterSystem)->stored_tokens();
}

}  // namespace

TEST_P(HotPrefix, OutlivesTwentyTimesItsSizeOfOtherTraffic) {
  for (const EngineKind& kind : large_engines()) {
    // Whole states at the ends of prompts have no prefix in common.
    const uint32_t possible =
        kind.options.rewind == Rewind::any && !kind.options.segments ? 0 : 192;
    for (const WritePolicy write :
         {WritePolicy::write_through, WritePolicy::write_back, WritePolicy::on_second_use}) {
      SCOPED_TRACE(std::string(kind.name) + ", policy " + std::to_string(int(write)));
      const std::unique_ptr<TierPlace> place = GetParam().make();
      if (place == nullptr) GTEST_SKIP() << "not on this machine";
      const std::unique_ptr<Tier> tier = place->open(kTight);
      EXPECT_EQ(stored_after(kind, *tier, write), possible);
      if (write == WritePolicy::write_through) {
        EXPECT_GT(tier->stats().evictions, 20U) << "the tier is too large for this test";
      }
    }
  }
}

}  // namespace stemma::test
