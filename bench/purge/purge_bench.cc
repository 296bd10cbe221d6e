// Question: how long does it take to remove one tenant completely from a tier with a million
// entries of a hundred tenants, and are all entries of the others still there? Before the clock
// starts every entry is in the tier; when it stops, each entry of the scope is asked for, and a
// sample of all others is read and compared.
#include "bench/purge/purge_bench.h"

#include <cstdio>

#ifdef STEMMA_HAS_TIER_DISK

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "stemma/tier/disk_tier.h"
#ifdef STEMMA_HAS_TIER_SHARED
#include "stemma/tier/shared_tier.h"
#endif
#ifdef STEMMA_HAS_TIER_REDIS
#include "base/random.h"
#include "flags/flags.h"
#include "stemma/tier/redis_tier.h"
#include "tiers/redis_server.h"
#endif

namespace stemma::bench::purge {

namespace {

constexpr const char* kHelp =
    R"(usage: stemma bench purge [--dir DIR] [--entries N] [--scopes N] [--only TIER] [--strict]

Fills a disk tier, a shared directory and a redis-server of its own on loopback with small entries
of many scopes, purges one scope from each, and checks that all of it is gone and that the others
are untouched.

  --dir DIR     where to make a directory of its own, which is removed afterwards (.)
  --entries N   of 512 bytes each (1000000)
  --scopes N    that they belong to in equal parts (100)
  --only TIER   disk, shared or redis
  --strict      exit code 1 when a purge takes more than 5 seconds or leaves something
)";

constexpr uint64_t kEntryBytes = 512;
constexpr uint64_t kAtOnce = 2'000;  // Entries of a batch.
constexpr double kLimitSeconds = 5;
constexpr uint64_t kPatienceNs = 600'000'000'000;

struct Arguments {
  std::string dir = ".";
  uint64_t entries = 1'000'000;
  uint64_t scopes = 100;
  std::string_view only;
  bool strict = false, help = false;
};

std::string parse(std::span<const std::string_view> words, Arguments& out) {
  flags::Flags flags;
  flags.text("--dir", out.dir);
  flags.whole("--entries", out.entries);
  flags.whole("--scopes", out.scopes);
  flags.choice("--only", out.only, {{"disk", "disk"}, {"shared", "shared"}, {"redis", "redis"}});
  flags.on("--strict", out.strict);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

uint64_t mixed(uint64_t number) noexcept { return base::mix(number + base::kRandomStep); }

// Entry `number` is of scope number % scopes.
EntryKey key_of(uint64_t number, uint64_t scopes) {
  EntryKey key;
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t word = i == 3 ? mixed(~(number % scopes)) : mixed(number * 4 + i);
    for (uint64_t b = 0; b < 8; ++b) {
      key.chain.bytes[8 * i + b] = static_cast<uint8_t>(word >> (8 * b));
    }
  }
  return key;
}

std::vector<uint8_t> bytes_of(uint64_t number) {
  std::vector<uint8_t> bytes(kEntryBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(mixed(number + (i / 8)) >> (8 * (i % 8)));
  }
  return bytes;
}

// Runs a batch over these entries and waits for it. Returns how many were done, with the right
// bytes if they were read.
uint64_t run(Tier& tier, TierOp op, std::span<const uint64_t> numbers, uint64_t scopes) {
  auto batch = TierBatch::make(op, numbers.size()).value();
  std::vector<std::vector<uint8_t>> memory(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    TierItem& item = batch->items()[i];
    item.key = key_of(numbers[i], scopes);
    item.info = {.begin = 0, .end = 16, .layout = 1, .bytes = kEntryBytes, .words = 0};
    memory[i] = op == TierOp::put ? bytes_of(numbers[i]) : std::vector<uint8_t>(kEntryBytes);
    if (op == TierOp::put) item.source = memory[i];
    if (op == TierOp::get) item.into = memory[i];
  }
  tier.submit(batch);
  batch->wait();
  uint64_t done = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool right = op != TierOp::get || memory[i] == bytes_of(numbers[i]);
    done += batch->items()[i].outcome == TierOutcome::done && right ? 1 : 0;
  }
  return done;
}

uint64_t run_all(Tier& tier, TierOp op, uint64_t first, uint64_t step, const Arguments& arguments) {
  uint64_t done = 0;
  std::vector<uint64_t> numbers;
  for (uint64_t number = first; number < arguments.entries; number += step) {
    numbers.push_back(number);
    if (numbers.size() < kAtOnce && number + step < arguments.entries) continue;
    done += run(tier, op, numbers, arguments.scopes);
    numbers.clear();
  }
  return done;
}

double seconds_of(const std::function<void()>& work) {
  const uint64_t begun_ns = Clock::monotonic().now_ns();
  work();
  return static_cast<double>(Clock::monotonic().now_ns() - begun_ns) * 1e-9;
}

// Whether it holds.
bool measure(Tier& tier, const Arguments& arguments) {
  const std::string& name = tier.traits().name;
  uint64_t put = 0;
  const double filling = seconds_of([&] {
    put = run_all(tier, TierOp::put, 0, 1, arguments);
    tier.flush(Clock::monotonic().now_ns() + kPatienceNs);
  });
  const uint64_t gone_number = arguments.scopes / 2;
  const Purge what{.owner = owner_of(key_of(gone_number, arguments.scopes))};
  Purged purged;
  const double took =
      seconds_of([&] { purged = tier.purge(what, Clock::monotonic().now_ns() + kPatienceNs); });
  const uint64_t scope_entries =
      (arguments.entries - gone_number + arguments.scopes - 1) / arguments.scopes;
  const uint64_t left = run_all(tier, TierOp::contains, gone_number, arguments.scopes, arguments);
  // This step reaches every scope.
  const uint64_t step = 11;
  uint64_t asked = 0, expected = 0;
  for (uint64_t number = 0; number < arguments.entries; number += step, ++asked) {
    expected += number % arguments.scopes != gone_number ? 1 : 0;
  }
  const uint64_t whole = run_all(tier, TierOp::get, 0, step, arguments);
  const bool right = put == arguments.entries && purged.complete &&
                     purged.entries == scope_entries && left == 0 && whole == expected;
  const bool holds = right && took <= kLimitSeconds;
  std::printf(
      "%-7s %llu entries of %llu scopes (filled in %.1f s): purged %llu in %.3f s, %llu left; of "
      "%llu others %llu were read, %llu whole   %s\n",
      name.c_str(), static_cast<unsigned long long>(put),
      static_cast<unsigned long long>(arguments.scopes), filling,
      static_cast<unsigned long long>(purged.entries), took, static_cast<unsigned long long>(left),
      static_cast<unsigned long long>(arguments.entries - scope_entries),
      static_cast<unsigned long long>(expected), static_cast<unsigned long long>(whole),
      holds ? "holds" : "MISSED");
  if (!purged.complete) std::printf("        %s\n", purged.error.c_str());
  std::fflush(stdout);
  return holds;
}

bool measure_disk(const std::string& path, const Arguments& arguments) {
  const uint64_t capacity = (arguments.entries + 1'000) * 4'096;
  auto tier = tier::disk::DiskTier::open(
      {.path = path, .capacity_bytes = capacity, .max_entry_bytes = 1U << 20U});
  if (!tier) {
    std::printf("disk    %s\n", tier.error().to_string().c_str());
    return false;
  }
  return measure(**tier, arguments);
}

bool measure_shared([[maybe_unused]] const std::string& path,
                    [[maybe_unused]] const Arguments& arguments) {
#ifdef STEMMA_HAS_TIER_SHARED
  const uint64_t capacity = (arguments.entries + 1'000) * 8'192;
  auto tier = tier::shared::SharedTier::open({.path = path,
                                              .capacity_bytes = capacity,
                                              .max_entry_bytes = 1U << 20U,
                                              .slack_bytes = capacity});
  if (!tier) {
    std::printf("shared  %s\n", tier.error().to_string().c_str());
    return false;
  }
  return measure(**tier, arguments);
#else
  std::printf("shared  this build has no shared tier\n");
  return true;
#endif
}

bool measure_redis([[maybe_unused]] const Arguments& arguments) {
#ifdef STEMMA_HAS_TIER_REDIS
  if (!test::server_program().empty()) {
    const test::RedisServer server;
    if (!server.wait_up()) return false;
    tier::redis::RedisOptions options;
    options.place = tier::redis::parse_url(server.url()).value();
    auto tier = tier::redis::RedisTier::create(options);
    if (!tier) return false;
    return measure(**tier, arguments);
  }
#endif
  std::printf("redis   there is no Redis tier in this build, or no redis-server on the PATH\n");
  return true;
}

}  // namespace

int run_purge_bench(std::span<const std::string_view> words) {
  Arguments arguments;
  if (const std::string problem = parse(words, arguments); !problem.empty()) {
    std::fprintf(stderr, "stemma bench purge: %s\nTry 'stemma bench purge --help'.\n",
                 problem.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  std::printf("%s\n", describe_machine().c_str());
  const std::filesystem::path own =
      std::filesystem::path(arguments.dir) / ("stemma-bench-purge-" + std::to_string(getpid()));
  std::filesystem::create_directory(own);
  const auto chosen = [&](std::string_view name) {
    return arguments.only.empty() || arguments.only == name;
  };
  bool holds = true;
  if (chosen("disk")) holds = measure_disk(own / "disk", arguments) && holds;
  if (chosen("redis")) holds = measure_redis(arguments) && holds;
  if (chosen("shared")) holds = measure_shared(own / "shared", arguments) && holds;
  std::filesystem::remove_all(own);
  return arguments.strict && !holds ? 1 : 0;
}

}  // namespace stemma::bench::purge

#else

namespace stemma::bench::purge {

int run_purge_bench(std::span<const std::string_view>) {
  std::fputs("stemma bench purge: this build has no disk tier (it needs libxxhash-dev)\n", stderr);
  return 2;
}

}  // namespace stemma::bench::purge

#endif
