// A writer under load is killed at random instants; another process, which knows what was
// acknowledged, checks what is left.
//
//   STEMMA_CRASH_ROUNDS=n   kills (otherwise 50)
//   STEMMA_TIER_SEED=n      of the first round (printed)
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "support/child_process.h"
#include "support/environment.h"
#include "support/temporary_directory.h"
#include "tiers/crash/crash.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using crash::Told;

// A writer's counts of its writes, in a file that both sides map.
class WritesUnderWay {
 public:
  explicit WritesUnderWay(const std::string& path) {
    {
      std::ofstream(path, std::ios::binary) << std::string(sizeof(crash::Counts), '\0');
    }
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* shared =
        mmap(nullptr, sizeof(crash::Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED) counts_ = static_cast<const crash::Counts*>(shared);
  }
  ~WritesUnderWay() { munmap(const_cast<crash::Counts*>(counts_), sizeof(crash::Counts)); }
  WritesUnderWay(const WritesUnderWay&) = delete;
  WritesUnderWay& operator=(const WritesUnderWay&) = delete;
  bool in_flight() const { return counts_->started.load() > counts_->ended.load(); }

 private:
  const crash::Counts* counts_ = nullptr;
};

// Reads a writer's messages until the other end is closed or `enough` returns true.
template <class Hear>
bool listen_to(int pipe, int timeout_ms, Hear&& hear) {
  for (;;) {
    pollfd ready = {.fd = pipe, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, timeout_ms) <= 0) return true;
    Told told[256];
    const auto count = read(pipe, told, sizeof told);
    if (count <= 0) return false;
    for (size_t i = 0; i < static_cast<size_t>(count) / sizeof(Told); ++i) hear(told[i]);
  }
}

}  // namespace

TEST(DiskCrash, KilledAtAnyInstantItKeepsWhatItAcknowledged) {
  const uint64_t rounds = from_environment("STEMMA_CRASH_ROUNDS", kSanitized ? 15 : 50);
  const uint64_t seed =
      from_environment("STEMMA_TIER_SEED", Clock::monotonic().now_ns() % 1'000'003);
  std::printf("STEMMA_TIER_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const TemporaryDirectory directory;
  const std::string counts_path = directory / "counts";
  const std::string expected_path = directory / "expected";

  std::set<uint64_t> acknowledged;
  std::set<uint64_t> unsure;
  std::set<uint64_t> gone;
  uint64_t next = 1;
  uint64_t in_flight = 0;
  uint64_t all_acknowledged = 0;
  uint64_t kills = 0;
  // On a busy machine this process may sleep while the write ends, so go on until enough kills have
  // hit a write.
  for (uint64_t round = 0; round < rounds || (in_flight * 10 < rounds * 9 && round < 10 * rounds);
       ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const WritesUnderWay writes(counts_path);
    int ends[2];
    ASSERT_EQ(pipe2(ends, 0), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const pid_t writer = start_program(
        "crash_program", {"write", directory / "store", counts_path, std::to_string(ends[1]),
                          std::to_string(next), std::to_string(random())});
    close(ends[1]);

    uint64_t heard = 0;
    const auto hear = [&](const Told& told) {
      switch (told.what) {
        case Told::begins: next = std::max(next, told.number + 1); break;
        case Told::acknowledged:
          ++heard;
          // If a removal has begun since, only its end tells whether the entry is there.
          if (!unsure.contains(told.number)) acknowledged.insert(told.number);
          break;
        case Told::removes:
          unsure.insert(told.number);
          acknowledged.erase(told.number);
          break;
        case Told::removed: gone.insert(told.number); break;
        default: ADD_FAILURE() << "the writer told nonsense";
      }
    };
    const auto begun = std::chrono::steady_clock::now();
    while (heard == 0 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(60)) {
      if (!listen_to(ends[0], 1, hear)) break;
    }
    ASSERT_GT(heard, 0U) << "the writer acknowledged nothing";
    const auto instant =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 30'000);
    while (std::chrono::steady_clock::now() < instant) {
      if (!listen_to(ends[0], 0, hear)) break;
    }
    // On a busy machine the writer itself may be waiting; then wait for its next write.
    const auto patience = instant + std::chrono::seconds(2);
    while (!writes.in_flight() && std::chrono::steady_clock::now() < patience) {
      if (!listen_to(ends[0], 0, hear)) break;
    }
    kill(writer, SIGKILL);
    ++kills;
    ASSERT_EQ(exit_code(writer), 128 + SIGKILL);
    while (listen_to(ends[0], 0, hear)) {
    }
    close(ends[0]);
    all_acknowledged += heard;
    in_flight += writes.in_flight() ? 1U : 0U;

    // Of the newest that fit, with a margin for what was under way.
    const uint64_t fit = crash::kSlots - crash::kMargin;
    const uint64_t oldest = next > fit ? next - fit : 1;
    acknowledged.erase(acknowledged.begin(), acknowledged.lower_bound(oldest));
    const uint64_t first = next > 4 * crash::kSlots ? next - 4 * crash::kSlots : 1;
    gone.erase(gone.begin(), gone.lower_bound(first));
    {
      const crash::Expected expected = {
          .first = first, .last = next, .must = acknowledged.size(), .gone = gone.size()};
      std::ofstream out(expected_path, std::ios::binary);
      out.write(reinterpret_cast<const char*>(&expected), sizeof expected);
      for (const auto* list : {&acknowledged, &gone}) {
        for (const uint64_t number : *list) {
          out.write(reinterpret_cast<const char*>(&number), sizeof number);
        }
      }
    }
    ASSERT_EQ(
        exit_code(start_program("crash_program", {"check", directory / "store", expected_path})),
        0);
  }
  std::printf("%llu kills, %llu with a write in flight, %llu acknowledged\n",
              static_cast<unsigned long long>(kills), static_cast<unsigned long long>(in_flight),
              static_cast<unsigned long long>(all_acknowledged));
  EXPECT_GE(in_flight * 10, rounds * 9);
}

}  // namespace stemma::test
