// Usage: shared_program live DIR SEED ROUNDS NUMBERS   puts, gets and removes at random
//        shared_program same DIR                       puts what others put too
//        shared_program fill DIR FIRST COUNT           puts so many new entries; hardly any may be refused
//        shared_program write DIR FIRST PIPE           puts until it is killed; tells what was acknowledged
//        shared_program check DIR FIRST LAST NUMBER...  all of [FIRST, LAST) is whole or absent, the rest is there
//
// Exits with 0 if everything is right, otherwise with 1 and a line that names the mistake.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>

#include "tiers/shared/shared_processes.h"

namespace stemma::test::processes {
namespace {

using enum TierOutcome;
using tier::shared::SharedTier;

int wrong(const char* what, uint64_t number = 0) {
  std::printf("shared_program: %s (%llu)\n", what, static_cast<unsigned long long>(number));
  return 1;
}

int live(SharedTier& tier, uint64_t seed, uint64_t rounds, uint64_t numbers) {
  std::mt19937_64 random(seed);
  Client client(tier);
  uint64_t hits = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<Entry> some;
    const uint64_t first = random() % numbers;
    for (uint64_t i = 0; i < 1 + random() % 6; ++i) some.push_back(numbered((first + i) % numbers));
    const uint64_t what = random() % 16;
    if (what == 0) {
      client.remove(some);
    } else if (what < 8) {
      for (const TierOutcome outcome : client.put(some)) {
        if (outcome != done && outcome != refused) return wrong("a put failed");
      }
    } else {
      const auto got = client.get(some);
      for (size_t i = 0; i < some.size(); ++i) {
        if (got[i].outcome != done && got[i].outcome != absent) return wrong("a get failed");
        if (got[i].outcome == done && got[i].bytes != some[i].bytes) return wrong("other bytes");
        hits += got[i].outcome == done ? 1U : 0U;
      }
    }
  }
  const TierStats stats = tier.stats();
  if (stats.corrupt != 0) return wrong("something was not whole", stats.corrupt);
  if (stats.evictions == 0) return wrong("nothing had to go");
  return hits > rounds / 8 ? 0 : wrong("hardly anything was there", hits);
}

int same(SharedTier& tier) {
  Client client(tier);
  const Outcomes outcomes = client.put(entries(1, kSame, kSameBytes));
  return outcomes == Outcomes(kSame, done) ? 0 : wrong("not all were put");
}

int fill(SharedTier& tier, uint64_t first, uint64_t count) {
  constexpr uint64_t kBatch = 4;
  Client client(tier);
  uint64_t refused_items = 0;
  for (uint64_t number = first; number < first + count; number += kBatch) {
    std::vector<Entry> some;
    for (uint64_t i = 0; i < kBatch; ++i) some.push_back(numbered(number + i));
    for (const TierOutcome outcome : client.put(some)) {
      if (outcome != done && outcome != refused) return wrong("a put failed");
      refused_items += outcome == refused ? 1U : 0U;
    }
  }
  if (tier.stats().evictions == 0) return wrong("nothing had to go");
  return refused_items * 100 < count ? 0 : wrong("so many puts were refused", refused_items);
}

// Several threads, so that a put is under way nearly always.
int write(SharedTier& tier, uint64_t first, int pipe) {
  constexpr uint64_t kBatch = 4, kThreads = 4;
  const auto run = [&](uint64_t self) {
    for (uint64_t number = first + self * kBatch;; number += kThreads * kBatch) {
      Client client(tier);
      std::vector<Entry> some;
      for (uint64_t i = 0; i < kBatch; ++i) some.push_back(numbered(number + i));
      const Outcomes outcomes = client.put(some);
      for (uint64_t i = 0; i < kBatch; ++i) {
        const uint64_t told = number + i;
        if (outcomes[i] == done && ::write(pipe, &told, sizeof told) != sizeof told) return;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t self = 0; self < kThreads; ++self) threads.emplace_back(run, self);
  for (std::thread& thread : threads) thread.join();
  return 1;
}

int check(SharedTier& tier, uint64_t first, uint64_t last, std::span<char*> must) {
  if (tier.stats().used_bytes > kCapacity) return wrong("too much", tier.stats().used_bytes);
  Client client(tier);
  for (char* word : must) {
    const Entry one = numbered(std::strtoull(word, nullptr, 10));
    if (client.get(one).bytes != one.bytes) return wrong("it was acknowledged and is not there");
  }
  for (uint64_t number = first; number < last; ++number) {
    const Entry one = numbered(number);
    const Got got = client.get(one);
    if (got.outcome == done ? got.bytes != one.bytes : got.outcome != absent) {
      return wrong("neither whole nor absent", number);
    }
  }
  return tier.stats().corrupt == 0 ? 0 : wrong("something was not whole");
}

}  // namespace
}  // namespace stemma::test::processes

int main(int argc, char** argv) {
  using namespace stemma::test::processes;  // NOLINT(google-build-using-namespace): it is all here.
  const std::string_view what = argc > 2 ? argv[1] : "";
  const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
  if (what.empty()) return 2;
  auto options = options_for(argv[2]);
  if (what == "same") options.capacity_bytes = stemma::test::kRoomy, options.slack_bytes = 0;
  if (what == "check") options.leftover_ns = 1;  // No other process is alive.
  auto opened = stemma::tier::shared::SharedTier::open(options);
  if (!opened) return wrong(opened.error().message());
  if (what == "live") return live(**opened, number(3), number(4), number(5));
  if (what == "same") return same(**opened);
  if (what == "fill") return fill(**opened, number(3), number(4));
  if (what == "write") return write(**opened, number(3), static_cast<int>(number(4)));
  if (what == "check" && argc >= 5) {
    const std::span<char*> must(argv + 5, static_cast<size_t>(argc - 5));
    return check(**opened, number(3), number(4), must);
  }
  return 2;
}
