// How much of its capacity the disk tier fills with payload when sizes differ, and in which order
// it gives entries up.
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include "stemma/tier/disk_tier.h"
#include "support/temporary_directory.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using tier::disk::DiskTier;

constexpr uint64_t kCapacity = uint64_t{16} << 20U;
constexpr uint64_t kFull = 512U << 10U;  // Of a full segment, or of a state.

struct Mix {
  const char* name;
  // The size of entry number `i`, put after `put` bytes; `u` is random from 0 to 1.
  std::function<uint64_t(uint64_t i, uint64_t put, double u, std::mt19937_64& random)> size;
  bool touches = false;
};

void PrintTo(const Mix& mix, std::ostream* out) { *out << mix.name; }

uint64_t tail(uint64_t full, std::mt19937_64& random) { return full / 64 * (1 + random() % 63); }

std::vector<Mix> mixes() {
  using Random = std::mt19937_64;
  const uint64_t segment = kFull / 50;
  return {
      {"Equal", [](uint64_t, uint64_t, double, Random&) { return kFull; }},
      {"Tails", [](uint64_t, uint64_t, double u,
                   Random& random) { return u < 0.25 ? tail(kFull, random) : kFull; }},
      {"States", [](uint64_t, uint64_t, double, Random& random) { return tail(kFull, random); }},
      {"Hybrid",
       [=](uint64_t, uint64_t, double u, Random& random) {
         return u < 0.25 ? kFull : u < 0.45 ? tail(segment, random) + 1 : segment;
       }},
      {"LogUniform", [](uint64_t, uint64_t, double u,
                        Random&) { return static_cast<uint64_t>(std::exp2(14 + 5 * u)); }},
      {"TinyAndHuge",
       [](uint64_t, uint64_t, double u, Random&) { return u < 0.9 ? uint64_t{4000} : kFull; }},
      {"TwoSizesInPhases",
       [](uint64_t, uint64_t put, double, Random&) {
         return put / (kCapacity / 2) % 2 == 0 ? kFull / 17 : kFull / 3;
       }},
      {"Growing",
       [](uint64_t i, uint64_t, double, Random&) { return std::min(kFull, 16'384 + i * 400); }},
      {"WindowWithCheckpoints",
       [](uint64_t, uint64_t, double u, Random& random) {
         return u < 0.5   ? kFull / 8
                : u < 0.7 ? tail(kFull / 8, random)
                          : kFull / 2 + random() % 3 * 4096;
       }},
      {"RandomTouches",
       [](uint64_t, uint64_t, double, Random& random) { return tail(kFull, random); },
       /*touches=*/true},
  };
}

class DiskResidency : public ::testing::TestWithParam<Mix> {};

}  // namespace

TEST_P(DiskResidency, AnyMixOfSizesFillsTheCapacity) {
  const TemporaryDirectory directory;
  const auto tier =
      DiskTier::open(
          {.path = directory / "store", .capacity_bytes = kCapacity, .max_entry_bytes = kFull})
          .value();
  std::mt19937_64 random(5);
  std::vector<uint8_t> bytes(kFull, 7);
  std::vector<uint64_t> sizes;
  const auto key = [](uint64_t number) { return entry(number, 0, 1).key; };
  const auto there = [&](uint64_t number) {
    const auto batch = *TierBatch::make(TierOp::contains, 1);
    batch->items()[0].key = key(number);
    tier->submit(batch);
    batch->wait();
    return batch->items()[0].outcome == TierOutcome::done;
  };
  const auto touch = [&](uint64_t number) {
    const auto batch = *TierBatch::make(TierOp::get, 1);
    batch->items()[0].key = key(number);
    batch->items()[0].info.layout = 1;
    batch->items()[0].into = bytes;
    tier->submit(batch);
    batch->wait();
  };
  uint64_t put = 0;
  uint64_t checks = 0;
  const auto look = [&] {
    uint64_t resident = 0;
    uint64_t newest = 0;
    for (uint64_t number = sizes.size(); number-- > 0;) {
      const bool is_there = there(number);
      if (is_there) resident += sizes[number];
      // Half of the capacity is far from the end of the order.
      if (newest < kCapacity / 2 && !GetParam().touches) {
        EXPECT_TRUE(is_there) << number << " of " << sizes.size();
      }
      newest += sizes[number];
    }
    EXPECT_GE(static_cast<double>(resident), 0.85 * kCapacity) << "after " << put << " bytes";
    ++checks;
  };
  while (put < 4 * kCapacity) {
    const auto batch = *TierBatch::make(TierOp::put, 1);
    TierItem& item = batch->items()[0];
    const double u = static_cast<double>(random() >> 11U) * 0x1.0p-53;
    const uint64_t size = GetParam().size(sizes.size(), put, u, random);
    item.key = key(sizes.size());
    item.info = {.begin = 0, .end = 64, .layout = 1, .bytes = size, .words = 0};
    item.source = std::span(bytes).first(size);
    tier->submit(batch);
    batch->wait();
    ASSERT_EQ(item.outcome, TierOutcome::done);
    sizes.push_back(size);
    const uint64_t before = put;
    put += size;
    if (GetParam().touches) touch(random() % sizes.size());
    // Each eighth of the capacity, once it has been full for a while.
    if (put > 2 * kCapacity && before / (kCapacity / 8) != put / (kCapacity / 8)) look();
  }
  EXPECT_GE(checks, 12U);
  EXPECT_LE(tier->stats().used_bytes, kCapacity);
  tier->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Mixes, DiskResidency, ::testing::ValuesIn(mixes()),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace stemma::test
