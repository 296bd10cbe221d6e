// Two processes write into one full shared directory. Neither knows what the other put or removed
// since its last scan; still hardly a put is refused, and the directory keeps to its capacity.
#include <atomic>
#include <thread>

#include "support/child_process.h"
#include "support/environment.h"
#include "support/temporary_directory.h"
#include "tiers/shared/shared_processes.h"
#include "tiers/shared_rig.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using enum TierOutcome;

constexpr uint64_t kMiB = 1U << 20U;

// Puts batches of new entries until this much was put; returns how many were refused. Entries have
// one size, or any size up to twice that.
uint64_t fill(SharedTier& tier, uint64_t first, uint64_t total_bytes, bool mixed) {
  constexpr uint64_t kBytes = 60'000;
  Client client(tier);
  uint64_t refused_items = 0, put_bytes = 0;
  for (uint64_t prompt = first; put_bytes < total_bytes; ++prompt) {
    const auto some = entries(prompt, 6, mixed ? 1 + prompt * 7919 % (2 * kBytes) : kBytes);
    for (const TierOutcome outcome : client.put(some)) {
      EXPECT_TRUE(outcome == done || outcome == refused);
      refused_items += outcome == refused ? 1U : 0U;
    }
    put_bytes += some.size() * some[0].bytes.size();
  }
  return refused_items;
}

// Counts the entries by the calls themselves: a listing could include both new entries and those
// removed for them.
class EntryCount {
 public:
  explicit EntryCount(FaultyFiles& files) {
    files.after_call = [this](std::string_view call, const std::string& path, int result) {
      const std::string name = path.substr(path.rfind('/') + 1);
      if (result != 0 || !tier::shared::parse_name(name)) return;
      const int64_t now = call == "link"     ? ++entries_
                          : call == "unlink" ? --entries_
                                             : entries_.load();
      for (int64_t most = most_.load(); now > most && !most_.compare_exchange_weak(most, now);) {
      }
    };
  }
  uint64_t most() const { return static_cast<uint64_t>(most_.load()); }

 private:
  std::atomic<int64_t> entries_{0}, most_{0};
};

struct Outcome {
  uint64_t refused_items = 0, puts = 0, most_entries = 0;
};

// Both at once, several times the capacity each.
Outcome fill_by_two(const SharedOptions& given, bool mixed) {
  SharedOptions options = given;
  auto files = std::make_shared<FaultyFiles>();
  EntryCount count(*files);
  options.files = files;
  const auto one = open_shared(options), other = open_shared(options);
  const uint64_t total = (kSanitized ? 2 : 6) * options.capacity_bytes;
  Outcome out;
  std::atomic<uint64_t> refused_items{0};
  std::thread first([&] { refused_items += fill(*one, 1'000'000, total, mixed); });
  refused_items += fill(*other, 2'000'000, total, mixed);
  first.join();
  out.refused_items = refused_items;
  out.puts = one->stats().puts + other->stats().puts + refused_items;
  out.most_entries = count.most();
  EXPECT_GT(one->stats().evictions, 50U);
  EXPECT_GT(other->stats().evictions, 50U);
  std::printf("%llu of %llu puts refused; at most %llu entries\n",
              static_cast<unsigned long long>(out.refused_items),
              static_cast<unsigned long long>(out.puts),
              static_cast<unsigned long long>(out.most_entries));
  return out;
}

}  // namespace

TEST(SharedWriters, TwoAtCapacityAreHardlyEverRefusedAndTheCapacityHolds) {
  constexpr uint64_t kRoom = 61'440;  // Of each entry.
  const TemporaryDirectory directory;
  const SharedOptions options{
      .path = directory / "store", .capacity_bytes = 16 * kMiB, .slack_bytes = kMiB, .threads = 4};
  const Outcome outcome = fill_by_two(options, /*mixed=*/false);
  EXPECT_LT(outcome.refused_items * 100, outcome.puts);
  EXPECT_LE(outcome.most_entries * kRoom, options.capacity_bytes + options.slack_bytes);
  EXPECT_GE(room_in(options.path), options.capacity_bytes * 3 / 4) << "the room is used";
}

TEST(SharedWriters, TwoWithEntriesOfAnySizeAreHardlyEverRefused) {
  const TemporaryDirectory directory;
  const SharedOptions options{
      .path = directory / "store", .capacity_bytes = 16 * kMiB, .slack_bytes = kMiB, .threads = 4};
  const Outcome outcome = fill_by_two(options, /*mixed=*/true);
  EXPECT_LT(outcome.refused_items * 100, outcome.puts);
  EXPECT_LE(room_in(options.path), options.capacity_bytes + options.slack_bytes);
  EXPECT_GE(room_in(options.path), options.capacity_bytes * 3 / 4) << "the room is used";
}

TEST(SharedWriters, TwoProcessesAtCapacityAreHardlyEverRefused) {
  const TemporaryDirectory directory;
  const std::string store = directory / "store";
  const std::string puts = kSanitized ? "300" : "1500";
  // Each exits with 1 when more than one put of a hundred was refused.
  const pid_t first = start_program("shared_program", {"fill", store, "100000", puts});
  const pid_t second = start_program("shared_program", {"fill", store, "900000", puts});
  EXPECT_EQ(exit_code(first), 0);
  EXPECT_EQ(exit_code(second), 0);
  EXPECT_LE(room_in(store), processes::kCapacity + processes::kSlack);
}

// An entry that another process removed to make room is not this one's eviction.
TEST(SharedWriters, WhatAnotherRemovedIsNotCountedAsAnEviction) {
  const TemporaryDirectory directory;
  const SharedOptions options{
      .path = directory / "store", .capacity_bytes = 40U << 10U, .slack_bytes = kMiB, .threads = 1};
  const auto tier = open_shared(options);
  Client client(*tier);
  const auto prompt = entries(1, 5, 8000);
  for (const Entry& one : prompt) ASSERT_EQ(client.put(one), done);
  for (const Entry& one : prompt) std::filesystem::remove(path_of(options.path, one));
  for (const Entry& one : entries(2, 5, 8000)) ASSERT_EQ(client.put(one), done);
  EXPECT_EQ(tier->stats().evictions, 0U);
  ASSERT_EQ(client.put(entry(3, 0, 8000)), done);
  EXPECT_EQ(tier->stats().evictions, 1U);
  EXPECT_EQ(room_in(options.path), tier->stats().used_bytes);
}

}  // namespace stemma::test
