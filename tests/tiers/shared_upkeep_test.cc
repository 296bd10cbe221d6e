// What a shared tier does beside its batches: syncs that fail, and scrubbing.
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/now.h"
#include "support/temporary_directory.h"
#include "tiers/shared_rig.h"

namespace stemma::test {
namespace {

using enum TierOutcome;

class SharedUpkeep : public ::testing::Test {
 protected:
  void open(uint64_t scrub_bytes_per_second = 0) {
    close();
    tier = open_shared({.path = store,
                        .capacity_bytes = 16U << 20U,
                        .threads = 4,
                        .stall_ns = 20'000'000'000,
                        .scrub_bytes_per_second = scrub_bytes_per_second,
                        .files = files});
    client = std::make_unique<Client>(*tier);
  }
  void close() {
    client.reset();
    tier.reset();
  }

  TemporaryDirectory directory;
  const std::string store = directory / "store";
  std::shared_ptr<FaultyFiles> files = std::make_shared<FaultyFiles>();
  std::unique_ptr<SharedTier> tier;
  std::unique_ptr<Client> client;
};

}  // namespace

// The system reports a failed write to one sync only.
TEST_F(SharedUpkeep, ASyncThatFailedIsNotGoodTheNextTime) {
  open();
  std::atomic<bool> fails{false};
  files->on_call = [&](std::string_view call, const std::string&) {
    return call == "sync_all" && fails.exchange(false) ? -EIO : 0;
  };
  const auto flush = [&] { return tier->flush(now_ns() + kPatienceNs); };
  const auto synced = entries(1, 3, 5000), durable = entries(2, 3, 5000);
  const auto doubtful = entries(3, 3, 5000);
  ASSERT_EQ(client->put(synced), Outcomes(3, done));
  ASSERT_TRUE(flush());
  ASSERT_EQ(client->put(durable, /*durable=*/true), Outcomes(3, done));
  ASSERT_EQ(client->put(doubtful), Outcomes(3, done));
  fails = true;
  EXPECT_FALSE(flush());
  EXPECT_EQ(client->contains(doubtful), Outcomes(3, absent)) << "they may not be on the disk";
  EXPECT_EQ(client->contains(synced), Outcomes(3, done));
  EXPECT_EQ(client->contains(durable), Outcomes(3, done));
  EXPECT_EQ(tier->stats().entries, 6U);
  EXPECT_TRUE(flush());
  // They are written again.
  EXPECT_EQ(client->put(doubtful), Outcomes(3, done));
  EXPECT_TRUE(flush());
  EXPECT_EQ(client->contains(doubtful), Outcomes(3, done));
  fails = true;
  EXPECT_TRUE(flush()) << "there is nothing to sync";
}

TEST_F(SharedUpkeep, ScrubbingRemovesWhatIsDamaged) {
  open();
  const auto some = entries(1, 20, 5000);
  ASSERT_EQ(client->put(some), Outcomes(20, done));
  close();
  const std::string path = path_of(store, some[7]);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(3000).put('?');
  open(uint64_t{1} << 40U);
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  while (tier->stats().entries != 19 && now_ns() < give_up_ns) std::this_thread::yield();
  EXPECT_EQ(tier->stats().corrupt, 1U);
  EXPECT_EQ(client->contains(some[7]), absent);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(client->get(some[8]).outcome, done);
}

// It cannot be removed either: no sync is good until it can.
TEST_F(SharedUpkeep, WhatASyncLostIsRemovedLaterIfItMustBe) {
  open();
  std::atomic<bool> broken{false};
  files->on_call = [&](std::string_view call, const std::string&) {
    return broken && (call == "sync_all" || call == "unlink") ? -EIO : 0;
  };
  const auto flush = [&] { return tier->flush(now_ns() + kPatienceNs); };
  ASSERT_EQ(client->put(entry(1, 0, 5000)), done);
  broken = true;
  EXPECT_FALSE(flush());
  EXPECT_FALSE(flush());
  broken = false;
  EXPECT_TRUE(flush());
  EXPECT_EQ(client->contains(entry(1, 0, 5000)), absent);
  EXPECT_EQ(tier->stats().entries, 0U);
}

}  // namespace stemma::test
