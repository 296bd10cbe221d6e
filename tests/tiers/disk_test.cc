// The disk tier keeps the contract, on real files through io_uring and through threads, through the
// page cache, and on simulated ones.
#include "stemma/tier/disk_tier.h"

#include <fstream>

#include "support/sim_files.h"
#include "support/temporary_directory.h"
#include "tier/disk/uring_queue.h"
#include "tiers/hot_prefix.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using tier::disk::DiskOptions;
using tier::disk::DiskTier;
using tier::disk::IoWay;

std::unique_ptr<Tier> open_disk(DiskOptions options, uint64_t capacity_bytes) {
  options.capacity_bytes = capacity_bytes;
  options.max_entry_bytes = 600 * tier::kPage;  // The largest entry of the suite fits.
  return DiskTier::open(options).value();
}

class DiskPlace final : public TierPlace {
 public:
  explicit DiskPlace(IoWay way) : way_(way) {}
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    return open_disk({.path = directory_ / "store", .way = way_}, capacity_bytes);
  }

 private:
  TemporaryDirectory directory_;
  IoWay way_;
};

class SimPlace final : public TierPlace {
 public:
  explicit SimPlace(bool direct) { files_.supports_direct = files_.supports_zero = direct; }
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    return open_disk({.path = "/store", .files = &files_}, capacity_bytes);
  }

 private:
  SimFiles files_;
};

std::unique_ptr<TierPlace> with_uring() {
  if (tier::disk::make_uring_queue(1) == nullptr) return nullptr;
  return std::make_unique<DiskPlace>(IoWay::uring);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Disk, TierContract,
    ::testing::Values(TierCase{"Uring", with_uring},
                      TierCase{"Threads",
                               [] { return std::make_unique<DiskPlace>(IoWay::threads); }},
                      TierCase{"Simulated", [] { return std::make_unique<SimPlace>(true); }},
                      TierCase{"SimulatedPoor", [] { return std::make_unique<SimPlace>(false); }}),
    case_name);

INSTANTIATE_TEST_SUITE_P(Disk, HotPrefix,
                         ::testing::Values(TierCase{
                             "Threads",
                             [] { return std::make_unique<DiskPlace>(IoWay::threads); }}),
                         case_name);

// Another thread checks many large entries at a time than checks a single one.
TEST(Disk, OfManyReadAtOnceThoseThatAreDamagedAreNotServed) {
  const TemporaryDirectory directory;
  constexpr uint64_t kBytes = 64U << 10U;
  constexpr uint32_t kEntries = 64;
  const auto all = entries(1, kEntries, kBytes);
  const DiskOptions options{
      .path = directory / "store", .capacity_bytes = 64U << 20U, .max_entry_bytes = kBytes};
  auto tier = DiskTier::open(options).value();
  ASSERT_EQ(Client(*tier).put(all), Outcomes(kEntries, TierOutcome::done));
  ASSERT_TRUE(tier->flush(Clock::monotonic().now_ns() + kPatienceNs));
  // In the middle of what each third one says.
  std::fstream slab(directory / "store/entries.slab",
                    std::ios::in | std::ios::out | std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(slab)), {});
  for (uint32_t i = 0; i < kEntries; i += 3) {
    const std::string middle(reinterpret_cast<const char*>(&all[i].bytes[kBytes / 2]), 64);
    const size_t at = file.find(middle);
    ASSERT_NE(at, std::string::npos);
    slab.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(~middle[0]));
  }
  slab.close();
  for (uint32_t round = 0; round < 2; ++round) {
    const auto got = Client(*tier).get(all);
    for (uint32_t i = 0; i < kEntries; ++i) {
      if (i % 3 != 0) {
        EXPECT_EQ(got[i].outcome, TierOutcome::done) << i;
        EXPECT_EQ(got[i].bytes, all[i].bytes) << i;
      } else {
        EXPECT_EQ(got[i].outcome, round == 0 ? TierOutcome::corrupt : TierOutcome::absent) << i;
      }
    }
  }
  EXPECT_EQ(tier->stats().corrupt, (kEntries + 2) / 3);
}

}  // namespace stemma::test
