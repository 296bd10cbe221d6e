// Sectors that cannot be read or written, syncs that fail, and removed files: the tier starts,
// serves, and does not use a bad place again.
#include <algorithm>
#include <cerrno>
#include <thread>

#include "stemma/tier/disk_tier.h"
#include "support/now.h"
#include "support/sim_files.h"
#include "tier/disk/layout.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using enum TierOutcome;
using tier::kPage;
using tier::disk::DiskOptions;
using tier::disk::DiskTier;

constexpr const char* kSlabPath = "/store/entries.slab";
constexpr const char* kTablePath = "/store/entries.table";
constexpr uint64_t kPages = 256;

DiskOptions small_options(SimFiles& files) {
  return {.path = "/store",
          .capacity_bytes = kPages * kPage,
          .max_entry_bytes = 100'000,
          .depth = 8,
          .retry_ns = 5'000'000,
          .files = &files};
}

std::unique_ptr<DiskTier> open_small(SimFiles& files) {
  auto opened = DiskTier::open(small_options(files));
  EXPECT_TRUE(opened) << opened.error().to_string();
  return *std::move(opened);
}

std::vector<Entry> some_entries() {
  std::vector<Entry> all;
  for (uint32_t i = 0; i < 20; ++i) all.push_back(entry(1, i, 3000 + 2500 * uint64_t{i}));
  return all;
}

// A disk with entries on it, and nobody using it.
std::unique_ptr<SimFiles> filled() {
  auto files = std::make_unique<SimFiles>();
  EXPECT_EQ(Client(*open_small(*files)).put(some_entries()), all(20, done));
  return files;
}

// Where the first byte of an entry lies in the slab.
uint64_t place_of(SimFiles& files, const Entry& one) {
  const auto& bytes = files.bytes_of(kSlabPath);
  const auto at = std::search(bytes.begin(), bytes.end(), one.bytes.begin(), one.bytes.end());
  EXPECT_NE(at, bytes.end());
  return static_cast<uint64_t>(at - bytes.begin());
}

}  // namespace

TEST(DiskSectors, WithAnySectorOfAnyFileUnreadableItStartsAndServes) {
  const auto entries = some_entries();
  for (const char* name : {"format", "entries.table", "entries.uses", "entries.slab"}) {
    const std::string path = std::string("/store/") + name;
    const uint64_t bytes = filled()->bytes_of(path).size();
    uint64_t lost = 0;
    // One of the eight sectors of each page.
    for (uint64_t at = 0; at < bytes; at += kPage + (at % kPage == 7 * 512 ? 512 - kPage : 512)) {
      SCOPED_TRACE(path + " " + std::to_string(at));
      const auto files = filled();
      files->make_bad(path, at, 512);
      for (int start = 0; start < 2; ++start) {
        const auto tier = open_small(*files);
        ASSERT_NE(tier, nullptr);
        Client client(*tier);
        for (const Entry& one : entries) {
          const bool there = client.whole_or_absent(one);
          // The second time all are there: the lost ones were put again, elsewhere.
          EXPECT_TRUE(there || start == 0);
          if (there) continue;
          ++lost;
          EXPECT_EQ(client.put(one), done);
          EXPECT_EQ(client.get(one).outcome, done);
        }
        tier->check_invariants();
      }
    }
    if (path == kSlabPath || path == kTablePath) {
      EXPECT_GT(lost, 0U);
    }
  }
}

TEST(DiskSectors, WhatCannotBeReadIsRemovedAndItsPlaceNotUsedAgain) {
  const auto files = filled();
  const auto entries = some_entries();
  const Entry& one = entries[10];
  const uint64_t place = place_of(*files, one);
  uint64_t retired = 0;
  {
    const auto tier = open_small(*files);
    Client client(*tier);
    files->make_bad(kSlabPath, place + kPage, 512);
    EXPECT_EQ(client.contains(one), done);
    EXPECT_EQ(client.get(one).outcome, failed);
    EXPECT_EQ(client.contains(one), absent);
    EXPECT_EQ(client.put(one), done);
    EXPECT_EQ(client.get(one).outcome, done);
    retired = tier->stats().retired_bytes;
    EXPECT_GE(retired, one.bytes.size());
    tier->check_invariants();
  }
  // It stays so, although other entries pass through the whole store.
  const auto tier = open_small(*files);
  EXPECT_EQ(tier->opening().retired_bytes, retired);
  Client client(*tier);
  EXPECT_TRUE(client.whole_or_absent(one));
  for (uint64_t prompt = 10; prompt < 30; ++prompt) {
    const auto others = test::entries(prompt, 5, 50'000);
    EXPECT_EQ(client.put(others), all(5, done));
    for (const Entry& other : others) EXPECT_EQ(client.get(other).outcome, done);
  }
  EXPECT_EQ(tier->stats().retired_bytes, retired);
  EXPECT_EQ(tier->stats().failed, 0U);
  tier->check_invariants();
}

TEST(DiskSectors, WhatCannotBeWrittenInOnePlaceIsWrittenInAnother) {
  SimFiles files;
  const auto one = entry(1, 0, 50'000);
  {
    const auto tier = open_small(files);
    Client client(*tier);
    ASSERT_EQ(client.put(entry(2, 0, 100)), done);
    files.make_bad(kSlabPath, 2 * kPage, kPage, /*writes=*/true);
    EXPECT_EQ(client.put(one), done);
    EXPECT_EQ(client.get(one).outcome, done);
    EXPECT_GT(tier->stats().retired_bytes, 0U);
    EXPECT_EQ(tier->stats().failed, 0U);
    tier->check_invariants();
  }
  const auto tier = open_small(files);
  EXPECT_GT(tier->stats().retired_bytes, 0U);
  EXPECT_TRUE(Client(*tier).whole_or_absent(one));
}

TEST(DiskSectors, APageOfTheTableThatCannotBeWrittenIsLeftAlone) {
  SimFiles files;
  const auto tier = open_small(files);
  Client client(*tier);
  ASSERT_EQ(client.put(entry(2, 0, 100)), done);
  files.make_bad(kTablePath, 0, kPage, /*writes=*/true);
  const auto entries = some_entries();
  EXPECT_EQ(client.put(entries), all(20, done));
  for (const Entry& one : entries) EXPECT_EQ(client.get(one).outcome, done);
  EXPECT_EQ(client.remove(entry(2, 0, 100)), failed);  // It may come back.
  EXPECT_EQ(client.contains(entry(2, 0, 100)), absent);
  tier->check_invariants();
}

// The system forgets data that it could not write: only data written again is on disk.
TEST(DiskSectors, ASyncThatFailedIsNotMadeGoodByALaterOne) {
  const auto files = filled();
  std::unique_ptr<SimFiles> after;
  const auto before = some_entries();
  const auto undurable = entries(2, 3, 9000);
  const auto durable = entries(3, 3, 9000);
  const auto later = entries(4, 3, 9000);
  {
    const auto tier = open_small(*files);
    Client client(*tier);
    EXPECT_EQ(client.put(std::span(before), /*durable=*/true), all(20, done));
    EXPECT_EQ(client.put(undurable), all(3, done));
    files->on_call([](std::string_view call, uint64_t nth) {
      return call == "io.sync" && nth < 2 ? std::optional<int64_t>(-EIO) : std::nullopt;
    });
    EXPECT_EQ(client.put(durable, /*durable=*/true), all(3, failed));
    EXPECT_EQ(client.contains(durable), all(3, absent));
    EXPECT_EQ(client.contains(undurable), all(3, absent));
    EXPECT_EQ(client.put(later, /*durable=*/true), all(3, done));
    EXPECT_EQ(client.put(std::span(durable).first(1), /*durable=*/true), all(1, done));
    after = files->after_power_loss(7);
  }
  const auto tier = open_small(*after);
  Client client(*tier);
  for (const Entry& one : before) EXPECT_TRUE(client.whole_or_absent(one));
  for (const Entry& one : later) EXPECT_TRUE(client.whole_or_absent(one));
  EXPECT_TRUE(client.whole_or_absent(durable[0]));
  EXPECT_FALSE(client.whole_or_absent(durable[1]));
}

TEST(DiskSectors, WhenItsFilesAreRemovedItSaysSoAndBeginsAnew) {
  SimFiles files;
  const auto tier = open_small(files);
  Client client(*tier);
  const auto before = some_entries();
  ASSERT_EQ(client.put(before), all(20, done));
  files.remove_all("/store");
  // Without syncs it is noticed soon; until then puts are believed.
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  uint64_t prompt = 2;
  while (client.put(entry(prompt, 0, 9000)) == done && now_ns() < give_up_ns) ++prompt;
  EXPECT_EQ(client.get(before[0]).outcome, failed);
  while (client.put(entry(prompt, 0, 9000)) != done && now_ns() < give_up_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(tier->stats().entries, 1U);
  EXPECT_EQ(client.contains(before[0]), absent);
  EXPECT_EQ(client.put(before, /*durable=*/true), all(20, done));
  for (const Entry& one : before) EXPECT_EQ(client.get(one).outcome, done);
  tier->check_invariants();
}

TEST(DiskSectors, DamageIsFoundBeforeSomebodyAsks) {
  const auto files = filled();
  const auto entries = some_entries();
  auto options = small_options(*files);
  options.scrub_bytes_per_second = uint64_t{1} << 40U;
  const auto tier = DiskTier::open(options).value();
  files->make_bad(kSlabPath, place_of(*files, entries[10]), 512);
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  while (tier->stats().retired_bytes == 0 && now_ns() < give_up_ns) std::this_thread::yield();
  EXPECT_EQ(tier->stats().entries, 19U);
  EXPECT_EQ(Client(*tier).contains(entries[10]), absent);
  tier->check_invariants();
}

}  // namespace stemma::test
