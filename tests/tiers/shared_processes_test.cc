// Several processes on one directory: the others get what one puts, nobody ever gets wrong bytes,
// the capacity holds within its slack, and a killed process leaves nothing visible.
//
//   STEMMA_CRASH_ROUNDS=n   kills (otherwise 30)
//   STEMMA_TIER_SEED=n      of the first round (printed)
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>

#include "support/child_process.h"
#include "support/environment.h"
#include "support/temporary_directory.h"
#include "tiers/shared/shared_processes.h"
#include "tiers/shared_rig.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using processes::kCapacity;
using processes::options_for;

pid_t start(std::vector<std::string> words) {
  return start_program("shared_program", std::move(words));
}

}  // namespace

TEST(SharedProcesses, ManyOnOneDirectorySeeNothingWrongAndTheCapacityHolds) {
  constexpr uint64_t kProcesses = 3;
  const std::string rounds = kSanitized ? "150" : "500";
  const uint64_t seed = first_seed();
  const TemporaryDirectory directory;
  const std::string store = directory / "store";
  // All make it at once: one of them does. Twice as much as fits is put.
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < kProcesses; ++i) {
    children.push_back(start({"live", store, std::to_string(seed + i), rounds, "300"}));
  }
  uint64_t most = 0;
  size_t running = children.size();
  while (running > 0) {
    most = std::max(most, room_in(store));
    for (pid_t& child : children) {
      int status = 0;
      if (child != 0 && waitpid(child, &status, WNOHANG) == child) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
        child = 0;
        --running;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::printf("most %llu of %llu\n", static_cast<unsigned long long>(most),
              static_cast<unsigned long long>(kCapacity));
  EXPECT_LE(most, kCapacity + (kProcesses - 1) * processes::kSlack);
  EXPECT_GE(most, kCapacity * 3 / 4);
  const auto tier = open_shared(options_for(store));
  EXPECT_LE(room_in(store), kCapacity);
  EXPECT_EQ(room_in(store), tier->stats().used_bytes);
}

TEST(SharedProcesses, TwoWhoPutTheSameBothSucceedAndItIsOneEntry) {
  const TemporaryDirectory directory;
  const std::string store = directory / "store";
  const pid_t first = start({"same", store}), second = start({"same", store});
  EXPECT_EQ(exit_code(first), 0);
  EXPECT_EQ(exit_code(second), 0);
  const auto tier = open_shared({.path = store, .capacity_bytes = kRoomy});
  EXPECT_EQ(tier->stats().entries, processes::kSame);
  EXPECT_EQ(room_in(store), processes::kSame * uint64_t{20'480}) << "nothing is left behind";
  Client client(*tier);
  for (const Entry& one : entries(1, processes::kSame, processes::kSameBytes)) {
    EXPECT_TRUE(client.whole_or_absent(one));
  }
}

// While a writer runs, a purge takes what it finds; after the writer is killed, nothing of it is
// left.
TEST(SharedProcesses, APurgeBesideAWriterThatIsKilledLeavesNothing) {
  const TemporaryDirectory directory;
  const std::string store = directory / "store";
  const auto tier = open_shared(options_for(store));
  uint64_t went = 0;
  for (uint64_t round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const pid_t writer =
        start({"write", store, std::to_string(1000 + round * 10'000), std::to_string(ends[1])});
    close(ends[1]);
    uint64_t told = 0;
    EXPECT_EQ(read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    const uint64_t until = Clock::monotonic().now_ns() + kPatienceNs;
    for (int i = 0; i < 3; ++i) {
      const Purged purged = tier->purge({}, until);
      EXPECT_TRUE(purged.complete) << purged.error;
      went += purged.entries;
    }
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    close(ends[0]);
    EXPECT_TRUE(tier->purge({}, until).complete);
    for (const auto& found : std::filesystem::recursive_directory_iterator(store)) {
      EXPECT_TRUE(found.is_directory() || found.path().filename() == "stemma-shared-tier")
          << found.path();
    }
  }
  EXPECT_GT(went, 0U);
}

TEST(SharedProcesses, WhoIsKilledLeavesNothingHalf) {
  const uint64_t rounds = from_environment("STEMMA_CRASH_ROUNDS", kSanitized ? 8 : 30);
  std::mt19937_64 random(first_seed());
  const TemporaryDirectory directory;
  const std::string store = directory / "store";
  uint64_t leftovers = 0, acknowledged_all = 0;
  // Slow builds put seldom, so go on until a kill has hit a put under way.
  for (uint64_t round = 0; round < rounds || (leftovers == 0 && round < 20 * rounds); ++round) {
    SCOPED_TRACE(round);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    // New numbers each round; acknowledged puts are reported through the pipe.
    const uint64_t first = 1000 + round * 10'000;
    const pid_t writer = start({"write", store, std::to_string(first), std::to_string(ends[1])});
    close(ends[1]);
    uint64_t told = 0;
    ASSERT_EQ(read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    std::vector<uint64_t> acknowledged{told};
    while (read(ends[0], &told, sizeof told) == sizeof told) acknowledged.push_back(told);
    close(ends[0]);
    acknowledged_all += acknowledged.size();
    for (const auto& found : std::filesystem::recursive_directory_iterator(store)) {
      leftovers += tier::shared::is_temporary(found.path().filename().string()) ? 1U : 0U;
    }
    // Another process checks: it has only the files. The newest cannot have been evicted, as more
    // than those fit.
    std::vector<std::string> words{"check", store, std::to_string(first),
                                   std::to_string(*std::ranges::max_element(acknowledged) + 32)};
    const size_t recent = std::min<size_t>(acknowledged.size(), 40);
    for (size_t i = acknowledged.size() - recent; i < acknowledged.size(); ++i) {
      words.push_back(std::to_string(acknowledged[i]));
    }
    EXPECT_EQ(exit_code(start(std::move(words))), 0);
  }
  std::printf("%llu acknowledged, %llu temporaries left\n",
              static_cast<unsigned long long>(acknowledged_all),
              static_cast<unsigned long long>(leftovers));
  EXPECT_GT(leftovers, 0U) << "no kill hit a put under way";
}

}  // namespace stemma::test
