// `stemma bench`: its arguments, and the order of events.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "bench/disk/disk_bench.h"
#include "bench/disk/sealed_bench.h"
#include "bench/harness.h"
#include "bench/purge/purge_bench.h"
#include "bench/redis/redis_bench.h"
#include "bench/sequences/report.h"
#include "bench/serve/serve_bench.h"
#include "flags/flags.h"

namespace stemma::bench {
namespace {

constexpr const char* kBenchHelp =
    R"(usage: stemma bench [--json] [--only NAME]... [--list] [--quick] [--threads N] [--strict]
       stemma bench serve [ARGUMENTS]       conversations over HTTP and llama.cpp; --help tells
       stemma bench disk [ARGUMENTS]        the disk tier beside its disk; --help tells
       stemma bench sealed [ARGUMENTS]      the disk tier with sealed entries beside the same without
       stemma bench redis [ARGUMENTS]       the Redis tier beside a raw client; --help tells
       stemma bench purge [ARGUMENTS]       how long forgetting one of many tenants takes; --help tells
       stemma bench sequences [ARGUMENTS]   other caches' policies for opaque engines; --help tells

Measures the cache and says which limits hold. Every benchmark first checks that the cache answers
right, then measures medians of calls interleaved with what they are compared to.

  --only NAME   only the row NAME, or if there is none all rows whose names contain NAME; may be
                given several times
  --list        the names of all rows, and the question each benchmark asks
  --quick       fewer repeats: under 20 seconds, noisier
  --threads N   lookups_per_second_N for up to N threads (otherwise as many as there are cores)
  --json        an array of {"name","value","unit","limit","pass"} on standard output, nothing else
  --strict      exit code 1 when a limit is missed (otherwise a miss is only reported)

A time passes within its limit, or within its multiple of a memcmp of 128 KiB measured in the same
run, whichever is larger. Rows without a limit are there to be looked at. bench/README.md tells what
each row means. For honest numbers leave the machine alone while it runs.

Exit codes: 0 done, 1 an answer was wrong (or, with --strict, a limit was missed), 2 bad arguments.
)";

struct BenchArguments {
  Settings settings;
  std::vector<std::string> only;
  bool json = false;
  bool list = false;
  bool strict = false;
  bool help = false;
};

// Returns an empty string, or what is wrong.
std::string parse(std::span<const std::string_view> words, BenchArguments& out) {
  flags::Flags flags;
  flags.take("--only", [&](std::string_view value) {
    out.only.emplace_back(value);
    return std::string();
  });
  flags.whole("--threads", out.settings.threads, 1U, 1024U);
  flags.on("--quick", out.settings.quick);
  flags.on("--list", out.list);
  flags.on("--json", out.json);
  flags.on("--strict", out.strict);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

// The rows that --only selects: the row of exactly that name, or else all whose names contain it.
class Chosen {
 public:
  Chosen(std::span<const Benchmark> benchmarks, std::span<const std::string> only) {
    for (const Benchmark& benchmark : benchmarks) {
      for (const std::string& row : benchmark.rows) {
        if (only.empty() || std::find(only.begin(), only.end(), row) != only.end())
          rows_.insert(row);
      }
    }
    for (const std::string& part : only) {
      if (rows_.contains(part)) continue;
      for (const Benchmark& benchmark : benchmarks) {
        for (const std::string& row : benchmark.rows) {
          if (row.find(part) != std::string::npos) rows_.insert(row);
        }
      }
    }
  }
  bool has(const std::string& row) const { return rows_.contains(row); }
  bool has_any(const Benchmark& benchmark) const {
    return std::any_of(benchmark.rows.begin(), benchmark.rows.end(),
                       [&](const std::string& row) { return has(row); });
  }

 private:
  std::set<std::string> rows_;
};

void list(std::span<const Benchmark> benchmarks, const Chosen& chosen) {
  for (const Benchmark& benchmark : benchmarks) {
    if (!chosen.has_any(benchmark)) continue;
    std::printf("%s\n", benchmark.question.c_str());
    for (const std::string& row : benchmark.rows) std::printf("  %s\n", row.c_str());
  }
}

std::vector<Row> run(const Benchmark& benchmark, const Settings& settings) {
  Sheet sheet(settings);
  std::string failure;
  try {
    benchmark.run(sheet);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  std::vector<Row> rows(sheet.rows().begin(), sheet.rows().end());
  if (failure.empty()) return rows;
  std::fprintf(stderr, "stemma bench: %s: %s\n", benchmark.rows.front().c_str(), failure.c_str());
  for (const std::string& name : benchmark.rows) {
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; })) {
      continue;
    }
    Row row;
    row.name = name;
    row.wrong = true;
    row.note = failure;
    rows.push_back(std::move(row));
  }
  return rows;
}

// The last line; returns whether every limit holds.
bool summarise(std::span<const Row> rows, double seconds, double waited, std::FILE* to) {
  size_t limits = 0;
  std::string missed;
  for (const Row& row : rows) {
    limits += row.sense != Sense::report || row.wrong ? 1 : 0;
    if (!row.passes()) missed += (missed.empty() ? "" : ", ") + row.name;
  }
  const auto misses = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return !row.passes(); }));
  std::fprintf(to, "%zu rows in %.1f s; %zu of %zu limits hold", rows.size(), seconds,
               limits - misses, limits);
  std::fprintf(to, missed.empty() ? "\n" : "; missed: %s\n", missed.c_str());
  if (waited > 0.05 * seconds) {
    std::fprintf(
        to,
        "The machine was busy: for %.0f %% of that time no core was free. Times are too high.\n",
        100 * waited / seconds);
  }
  return missed.empty();
}

}  // namespace

int run_bench(std::span<const std::string_view> words) {
  if (!words.empty() && words.front() == "disk") return disk::run_disk_bench(words.subspan(1));
  if (!words.empty() && words.front() == "sealed") return disk::run_sealed_bench(words.subspan(1));
  if (!words.empty() && words.front() == "serve") return serve::run_serve_bench(words.subspan(1));
  if (!words.empty() && words.front() == "restart") {
    return serve::run_restart_bench(words.subspan(1));
  }
  if (!words.empty() && words.front() == "redis") return redis::run_redis_bench(words.subspan(1));
  if (!words.empty() && words.front() == "purge") return purge::run_purge_bench(words.subspan(1));
  if (!words.empty() && words.front() == "sequences") {
    return sequences::run_sequences(words.subspan(1));
  }
  BenchArguments arguments;
  if (const std::string problem = parse(words, arguments); !problem.empty()) {
    std::fprintf(stderr, "stemma bench: %s\nTry 'stemma bench --help'.\n", problem.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kBenchHelp, stdout);
    return 0;
  }
  const std::vector<Benchmark> benchmarks = all_benchmarks(arguments.settings);
  const Chosen chosen(benchmarks, arguments.only);
  if (std::none_of(benchmarks.begin(), benchmarks.end(),
                   [&](const Benchmark& benchmark) { return chosen.has_any(benchmark); })) {
    std::fprintf(stderr,
                 "stemma bench: no row has such a name; 'stemma bench --list' names them\n");
    return 2;
  }
  if (arguments.list) {
    list(benchmarks, chosen);
    return 0;
  }

  std::fprintf(arguments.json ? stderr : stdout, "%s\n", describe_machine().c_str());
  std::fflush(stdout);
  const uint64_t begin = now_ns();
  const double waited_before = waited_seconds();
  std::vector<Row> rows;
  for (const Benchmark& benchmark : benchmarks) {
    if (!chosen.has_any(benchmark)) continue;
    std::fprintf(stderr, "[%5.1f s] %s\n", static_cast<double>(now_ns() - begin) * 1e-9,
                 benchmark.question.c_str());
    for (Row& row : run(benchmark, arguments.settings)) {
      if (chosen.has(row.name)) rows.push_back(std::move(row));
    }
  }
  const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  if (arguments.json) {
    print_json(rows);
  } else {
    std::printf("\n");
    print_table(rows);
    std::printf("\n");
  }
  const double waited = waited_seconds() - waited_before;
  const bool all_hold = summarise(rows, seconds, waited, arguments.json ? stderr : stdout);
  const bool any_wrong =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong; });
  return any_wrong || (arguments.strict && !all_hold) ? 1 : 0;
}

}  // namespace stemma::bench
