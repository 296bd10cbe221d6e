#include "bench/redis/redis_bench.h"

#include <cstdio>

#ifdef STEMMA_HAS_TIER_REDIS

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/redis/raw_pipe.h"
#include "flags/flags.h"
#include "stemma/tier/redis_tier.h"
#include "tiers/redis_server.h"

namespace stemma::bench::redis {

namespace {

using tier::redis::RedisTier;

constexpr const char* kHelp =
    R"(usage: stemma bench redis [--quick] [--strict]

Starts a redis-server (or valkey-server) of its own, and a cluster of three, on loopback. Puts and gets
entries of 2 MiB and of 512 KiB, 64 MiB a batch, through the Redis tier and through a raw client that only
moves the bytes, in turn; then asks a cluster for 2,048 keys. Medians. The tier writes and checks checksums
and asks before it writes; the raw client does not.

  --quick   fewer repeats
  --strict  exit code 1 when the tier is below 90 % of the raw client
)";

constexpr double kLimit = 0.9;
constexpr uint64_t kBatchBytes = uint64_t{64} << 20U;

double seconds() { return static_cast<double>(Clock::monotonic().now_ns()) * 1e-9; }

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

EntryKey key_of(uint64_t number) {
  EntryKey key;
  for (size_t i = 0; i < key.chain.bytes.size(); ++i) {
    key.chain.bytes[i] = static_cast<uint8_t>((number * 0x9E37'79B9'7F4A'7C15U) >> (i % 8 * 8)) ^ i;
  }
  return key;
}

// Runs batches over the tier and waits for them.
bool run_batch(Tier& tier, TierOp op, std::span<std::vector<uint8_t>> values, uint64_t first) {
  auto batch = TierBatch::make(op, values.size()).value();
  for (size_t i = 0; i < values.size(); ++i) {
    TierItem& item = batch->items()[i];
    item.key = key_of(first + i);
    item.info = {.begin = 0, .end = 16, .layout = 1, .bytes = values[i].size()};
    if (op == TierOp::put) item.source = values[i];
    if (op == TierOp::get) item.into = values[i];
  }
  tier.submit(batch);
  batch->wait();
  const auto items = batch->items();
  return std::all_of(items.begin(), items.end(),
                     [](const TierItem& item) { return item.outcome == TierOutcome::done; });
}

struct Series {
  std::vector<double> gb_per_s, cpu_per_gb;

  template <class Work>
  bool measure(Work work) {
    const double cpu = cpu_seconds();
    const double begin = seconds();
    if (!work()) return false;
    const double gb = static_cast<double>(kBatchBytes) * 1e-9;
    gb_per_s.push_back(gb / (seconds() - begin));
    cpu_per_gb.push_back((cpu_seconds() - cpu) / gb);
    return true;
  }
};

// Whether the limit holds.
bool report(const char* what, uint64_t bytes, const Series& ours, const Series& raw) {
  // Ratios of neighbours, so that a machine that changes speed changes both.
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.gb_per_s.size(); ++i)
    ratios.push_back(ours.gb_per_s[i] / raw.gb_per_s[i]);
  const double ratio = median(ratios);
  std::printf(
      "%-4s %5llu KiB   %6.2f GB/s   raw %6.2f GB/s   %5.1f %%   CPU s/GB %5.2f (raw %5.2f)   %s\n",
      what, static_cast<unsigned long long>(bytes >> 10U), median(ours.gb_per_s),
      median(raw.gb_per_s), ratio * 100, median(ours.cpu_per_gb), median(raw.cpu_per_gb),
      ratio >= kLimit ? "holds" : "MISSED");
  return ratio >= kLimit;
}

// The best number of gets for the raw client to send ahead; 0 after an error.
size_t best_ahead(RawPipe& raw, std::span<const std::string> names,
                  std::span<std::vector<uint8_t>> rooms) {
  size_t best = 0;
  double best_speed = 0;
  for (const size_t ahead : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, names.size()}) {
    Series series;
    for (int i = 0; i < 9; ++i) {
      if (!series.measure([&] { return raw.get(names, rooms, ahead); })) return 0;
    }
    if (median(series.gb_per_s) <= best_speed) continue;
    best = ahead;
    best_speed = median(series.gb_per_s);
  }
  return best;
}

// Returns the number of missed limits; -1 after an error.
int measure_size(const test::RedisServer& server, uint64_t bytes, int repeats) {
  auto tier = RedisTier::create({.place = *tier::redis::parse_url(server.url())}).value();
  RawPipe raw(server.port());
  const size_t count = kBatchBytes / bytes;
  std::vector<std::vector<uint8_t>> values(count, std::vector<uint8_t>(bytes));
  uint64_t state = 1;
  for (auto& value : values) {
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
      state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
      std::memcpy(value.data() + at, &state, 8);
    }
  }
  std::vector<std::vector<uint8_t>> rooms = values;
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("raw:" + std::to_string(i));
  const size_t ahead = raw.put(names, values) ? best_ahead(raw, names, rooms) : 0;
  if (ahead == 0) return -1;
  Series put, get, raw_put, raw_get;
  for (int round = -1; round < repeats; ++round) {
    Series warm_up;
    const bool counts = round >= 0;
    const auto tier_first = round % 2 == 0;
    for (const bool ours : {tier_first, !tier_first}) {
      for (auto& room : rooms) std::fill(room.begin(), room.end(), uint8_t{0});
      if (!raw.flush()) return -1;
      const bool good =
          ours ? (counts ? put : warm_up).measure([&] {
            return run_batch(*tier, TierOp::put, values, 0);
          }) && (counts ? get : warm_up).measure([&] {
            return run_batch(*tier, TierOp::get, rooms, 0);
          })
               : (counts ? raw_put : warm_up).measure([&] { return raw.put(names, values); }) &&
                     (counts ? raw_get : warm_up).measure([&] {
                       return raw.get(names, rooms, ahead);
                     });
      if (!good || rooms != values) {
        std::fprintf(stderr, "stemma bench redis: %s gave something else\n",
                     ours ? "the tier" : "the raw client");
        return -1;
      }
    }
  }
  const int missed =
      (report("put", bytes, put, raw_put) ? 0 : 1) + (report("get", bytes, get, raw_get) ? 0 : 1);
  std::printf("     (the raw client asks for %zu ahead: its best of 1, 2, 4, 8, %zu)\n", ahead,
              count);
  return missed;
}

bool measure_query(int repeats) {
  const test::RedisCluster cluster(3, false, 5'000);
  if (!cluster.formed()) {
    std::fprintf(stderr, "stemma bench redis: the cluster did not form\n");
    return false;
  }
  auto tier = RedisTier::create({.place = *tier::redis::parse_url(cluster.url())}).value();
  tier->wait_ready(Clock::monotonic().now_ns() + 10'000'000'000);
  std::vector<std::vector<uint8_t>> values(2'048, std::vector<uint8_t>(64, 1));
  if (!run_batch(*tier, TierOp::put, values, 0)) return false;
  std::vector<double> took, pings;
  RawPipe raw(cluster.servers[0]->port());
  const auto before = tier->counters();
  for (int i = 0; i < repeats * 10; ++i) {
    double begin = seconds();
    if (!run_batch(*tier, TierOp::contains, values, 0)) return false;
    took.push_back(seconds() - begin);
    begin = seconds();
    if (!raw.ping()) return false;
    pings.push_back(seconds() - begin);
  }
  const auto after = tier->counters();
  const double trips =
      static_cast<double>(after.round_trips - before.round_trips) / (repeats * 10) / 3;
  std::printf(
      "stored-prefix query of 2048 keys over 3 nodes: %.2f ms, %.2f round trips per node (a ping "
      "takes %.2f ms)   %s\n",
      median(took) * 1e3, trips, median(pings) * 1e3, trips <= 1 ? "holds" : "MISSED");
  return trips <= 1;
}

}  // namespace

int run_redis_bench(std::span<const std::string_view> words) {
  bool quick = false, strict = false;
  flags::Flags flags;
  flags.on("--quick", quick);
  flags.on("--strict", strict);
  if (const std::string wrong = flags.read(words); !wrong.empty()) {
    std::fprintf(stderr, "stemma bench redis: %s\nTry 'stemma bench redis --help'.\n",
                 wrong.c_str());
    return 2;
  }
  if (flags.help()) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (test::server_program().empty()) {
    std::fprintf(stderr, "stemma bench redis: there is no redis-server on the PATH\n");
    return 2;
  }
  std::printf("%s\n", describe_machine().c_str());
  const int repeats = quick ? 5 : 15;
  int missed = 0;
  {
    const test::RedisServer server;
    if (!server.wait_up()) {
      std::fprintf(stderr, "stemma bench redis: the server does not start\n");
      return 1;
    }
    for (const uint64_t bytes : {uint64_t{2} << 20U, uint64_t{512} << 10U}) {
      const int result = measure_size(server, bytes, repeats);
      if (result < 0) return 1;
      missed += result;
    }
  }
  if (!measure_query(repeats)) ++missed;
  return strict && missed != 0 ? 1 : 0;
}

}  // namespace stemma::bench::redis

#else

namespace stemma::bench::redis {

int run_redis_bench(std::span<const std::string_view>) {
  std::fputs("stemma bench redis: this build has no Redis tier (it needs libxxhash-dev)\n", stderr);
  return 2;
}

}  // namespace stemma::bench::redis

#endif
