// A purge leaves nothing of the entries it took in a disk tier's files, whatever call fails and
// whenever the power does.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "stemma/tier/disk_tier.h"
#include "support/now.h"
#include "support/sim_files.h"
#include "tiers/tier_suite.h"

namespace stemma::test::disk_purge {
namespace {

using enum TierOutcome;
using tier::kPage;
using tier::disk::DiskOptions;
using tier::disk::DiskTier;

constexpr const char* kSlab = "/store/entries.slab";
constexpr uint64_t kOwner = 7;

std::unique_ptr<DiskTier> open(SimFiles& files, uint64_t pages = 1024) {
  return DiskTier::open({.path = "/store",
                         .capacity_bytes = pages * kPage,
                         .max_entry_bytes = 100'000,
                         .errors_to_break = 100,
                         .files = &files})
      .value();
}

// Its payload repeats one pattern, and so do its words.
std::vector<Entry> marked(uint64_t owner, uint64_t prompt, uint32_t count, uint64_t bytes) {
  std::vector<Entry> made = entries(prompt, count, bytes);
  for (Entry& one : made) {
    std::memcpy(one.key.chain.bytes.data() + 24, &owner, sizeof owner);
    if (owner == kOwner) std::fill(one.bytes.begin(), one.bytes.end(), uint8_t{0xA7});
  }
  return made;
}

bool has_pattern(SimFiles& files) {
  const std::vector<uint8_t> pattern(16, 0xA7);
  const std::vector<uint8_t>& bytes = files.bytes_of(kSlab);
  return std::search(bytes.begin(), bytes.end(), pattern.begin(), pattern.end()) != bytes.end();
}

uint64_t soon() { return now_ns() + kPatienceNs; }

const std::vector<Entry> kMine = marked(kOwner, 1, 20, 9000), kOther = marked(8, 2, 20, 9000);

}  // namespace

TEST(DiskPurge, NothingOfItCanBeReadFromTheFiles) {
  for (const bool supports_zero : {true, false}) {
    SimFiles files;
    files.supports_zero = supports_zero;
    auto tier = open(files);
    Client client(*tier);
    client.put(kMine);
    client.put(kOther);
    // These are removed before, but their bytes are still in the file.
    client.remove(std::span(kMine).first(3));
    ASSERT_TRUE(has_pattern(files));
    const Purged purged = tier->purge({.owner = kOwner}, soon());
    EXPECT_TRUE(purged.complete) << purged.error;
    EXPECT_EQ(purged.entries, 17U);
    EXPECT_FALSE(has_pattern(files));
    tier->check_invariants();
    EXPECT_EQ(client.contains(kOther), all(20, done));
    tier.reset();
    EXPECT_FALSE(has_pattern(files));
    tier = open(files);
    EXPECT_EQ(Client(*tier).contains(kMine), all(20, absent));
    for (const Entry& one : kOther) EXPECT_EQ(Client(*tier).get(one).bytes, one.bytes);
  }
}

TEST(DiskPurge, WhatWasEvictedBeforeIsErasedAsWell) {
  SimFiles files;
  auto tier = open(files, 60);  // Exactly what it takes.
  Client client(*tier);
  client.put(kMine);
  // A large one takes the places of seven of them, but for one page.
  ASSERT_EQ(client.put(marked(8, 100, 1, 80'000)), all(1, done));
  ASSERT_EQ(tier->stats().evictions, 7U);
  EXPECT_TRUE(tier->purge({.owner = kOwner}, soon()).complete);
  EXPECT_FALSE(has_pattern(files));
  tier->check_invariants();
}

// No purged entry and no byte of one is left once the purge has reported that it is complete.
TEST(DiskPurge, ALossOfPowerBringsNothingBack) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimFiles files(seed);
    auto tier = open(files);
    Client client(*tier);
    client.put(kMine);
    client.put(kOther, /*durable=*/true);
    ASSERT_TRUE(tier->purge({.owner = kOwner}, soon()).complete);
    const auto later = files.after_power_loss(seed);
    const auto again = open(*later);
    EXPECT_FALSE(has_pattern(*later)) << seed;
    EXPECT_EQ(Client(*again).contains(kMine), all(20, absent)) << seed;
    EXPECT_EQ(Client(*again).contains(kOther), all(20, done)) << seed;
  }
}

// In the middle of a purge some may be left, each of them whole.
TEST(DiskPurge, ALossOfPowerInTheMiddleLeavesNothingThatIsWrong) {
  for (uint64_t nth = 0; nth < 20; ++nth) {
    SimFiles files(nth);
    auto tier = open(files);
    Client client(*tier);
    client.put(kMine, /*durable=*/true);
    client.put(kOther, /*durable=*/true);
    std::unique_ptr<SimFiles> later;
    const uint64_t before = files.calls("zero");
    files.on_call([&](std::string_view call, uint64_t at) -> std::optional<int64_t> {
      return call == "zero" && at >= before + nth ? std::optional<int64_t>(-EIO) : std::nullopt;
    });
    const Purged purged = tier->purge({.owner = kOwner}, soon());
    EXPECT_FALSE(purged.complete);
    later = files.after_power_loss(nth);
    const auto again = open(*later);
    Client reader(*again);
    for (const Entry& one : kMine) reader.whole_or_absent(one);
    for (const Entry& one : kOther) EXPECT_TRUE(reader.whole_or_absent(one)) << nth;
  }
}

// Most of a large disk may be free pages, and other callers want to read meanwhile.
TEST(DiskPurge, OthersAreServedWhileFreePagesAreErased) {
  SimFiles files;
  auto tier = open(files, (96U << 20U) / kPage);
  Client client(*tier);
  ASSERT_EQ(client.put(kOther), all(20, done));
  // 36 MB of them.
  ASSERT_EQ(client.put(marked(8, 3, 400, 90'000)), all(400, done));
  ASSERT_EQ(client.remove(marked(8, 3, 400, 90'000)), all(400, done));
  std::atomic<bool> is_between{false};
  // A read is seen between the first and the last piece in one of many rounds, or never.
  for (int round = 0; round < 200 && !is_between; ++round) {
    ASSERT_EQ(client.put(kMine), all(20, done));
    std::atomic<uint64_t> pieces{0}, at_read{0};
    files.on_call([&](std::string_view call, uint64_t) -> std::optional<int64_t> {
      if (call == "io.read" && pieces != 0) at_read = pieces.load();
      if (call != "zero") return std::nullopt;
      if (at_read != 0) is_between = true;
      ++pieces;
      return std::nullopt;
    });
    std::atomic<bool> ends{false};
    std::thread reader([&] {
      while (!ends) EXPECT_EQ(client.get(kOther[0]).outcome, done);
    });
    const Purged purged = tier->purge({.owner = kOwner}, soon());
    ends = true;
    reader.join();
    files.on_call({});
    EXPECT_TRUE(purged.complete) << purged.error;
    EXPECT_GE(pieces, 20U + 9U) << "of the entries, and of the free pages";
  }
  EXPECT_TRUE(is_between);
}

// Free pages that a put takes before they are erased are erased first: where the put fails, its
// pages are free again as they were.
TEST(DiskPurge, PagesThatAPutTakesMeanwhileAreErasedBefore) {
  bool took = false;
  for (int round = 0; round < 50 && !took; ++round) {
    SimFiles files;
    auto tier = open(files, (96U << 20U) / kPage);
    Client client(*tier);
    ASSERT_EQ(client.put(marked(kOwner, 1, 400, 90'000)), all(400, done));
    ASSERT_EQ(client.remove(marked(kOwner, 1, 400, 90'000)), all(400, done));
    ASSERT_TRUE(has_pattern(files));
    // Nothing can be written while the purge goes on, so that every put fails.
    std::atomic<bool> begun{false};
    std::atomic<uint64_t> failures{0};
    files.on_call([&](std::string_view call, uint64_t) -> std::optional<int64_t> {
      if (call == "zero") begun = true;
      if (call != "io.write" || !begun) return std::nullopt;
      ++failures;
      return -ENOSPC;
    });
    std::atomic<bool> ends{false};
    std::thread writer([&] {
      while (!ends) client.put(marked(8, 3, 1, 90'000));
    });
    const Purged purged = tier->purge({.owner = kOwner}, soon());
    took = failures != 0;
    ends = true;
    writer.join();
    files.on_call({});
    EXPECT_TRUE(purged.complete) << purged.error;
    tier.reset();
    EXPECT_FALSE(has_pattern(files)) << round;
  }
  EXPECT_TRUE(took);
}

TEST(DiskPurge, SaysWhatTheFileSystemRefused) {
  for (const char* refused : {"zero", "write", "io.sync"}) {
    SimFiles files;
    auto tier = open(files);
    Client client(*tier);
    client.put(kMine, /*durable=*/true);
    client.put(kOther, /*durable=*/true);
    files.on_call([&](std::string_view call, uint64_t) -> std::optional<int64_t> {
      return call == refused ? std::optional<int64_t>(-EIO) : std::nullopt;
    });
    const Purged purged = tier->purge({.owner = kOwner}, soon());
    EXPECT_FALSE(purged.complete) << refused;
    EXPECT_NE(purged.error, "") << refused;
    EXPECT_EQ(client.contains(kMine), all(20, absent)) << refused;
    tier->check_invariants();
    // When it works again, the rest goes.
    files.on_call({});
    const Purged again = tier->purge({.owner = kOwner}, soon());
    EXPECT_TRUE(again.complete) << refused << ": " << again.error;
    EXPECT_FALSE(has_pattern(files)) << refused;
  }
}

TEST(DiskPurge, EndsInTimeWhenTheDiskStalls) {
  SimFiles files;
  auto tier = open(files);
  Client client(*tier);
  client.put(kMine);
  files.hold(true);
  Work stuck(TierOp::get, std::span(kMine).first(1));
  stuck.submit_to(*tier);
  files.wait_for_held(1);
  const Purged purged = tier->purge({.owner = kOwner}, now_ns() + 20'000'000);
  EXPECT_FALSE(purged.complete);
  EXPECT_NE(purged.error, "");
  files.hold(false);
  EXPECT_EQ(stuck.finish().outcomes(), all(1, done));
  EXPECT_TRUE(tier->purge({.owner = kOwner}, soon()).complete);
  EXPECT_EQ(client.contains(kMine), all(20, absent));
}

}  // namespace stemma::test::disk_purge
