#include "cli/replay.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "json/write.h"
#include "replay/arguments.h"
#include "replay/recommend.h"
#include "replay/report.h"
#include "replay/sizes.h"
#include "replay/sweep.h"
#include "retain/policies.h"

namespace stemma::cli {
namespace {

using replay::capacities_of;
using replay::format_bytes;
using replay::format_count;
using replay::parse_replay;
using replay::ReplayArguments;
using replay::ReplayResult;
using replay::Trace;

// Shows the progress in one line on standard error, if that is a terminal.
class ReplayProgress {
 public:
  void show(const char* what, double part) {
    if (!watched_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    constexpr int kWidth = 30;
    const int full = std::clamp(static_cast<int>(part * kWidth), 0, kWidth);
    std::fprintf(stderr, "\r\033[K  %s [%s%s] %3.0f %%", what, std::string(full, '#').c_str(),
                 std::string(kWidth - full, ' ').c_str(), 100 * part);
  }
  void show_lines(uint64_t lines) {
    if (!watched_) return;
    std::fprintf(stderr, "\r\033[K  reading: %s lines", format_count(lines).c_str());
  }
  void clear() const {
    if (watched_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool watched_ = isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point next_;
};

std::string json_string(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// Does everything that `stemma replay` does after it has parsed its arguments.
class Run {
 public:
  explicit Run(const ReplayArguments& arguments) : arguments_(arguments) {}

  int go() {
    if (const std::optional<int> failed = load()) return *failed;
    if (std::string problem = capacities_of(arguments_, trace_, capacities_); !problem.empty()) {
      return fail(problem, 2);
    }
    if (std::string problem = replay_all(); !problem.empty()) return fail(problem, 1);
    if (arguments_.json) {
      print_json();
    } else {
      print_table();
    }
    return arguments_.report.empty() ? 0 : write_report();
  }

 private:
  static int fail(const std::string& problem, int code) {
    std::fprintf(stderr, "stemma replay: %s\n", problem.c_str());
    return code;
  }

  std::optional<int> load() {
    replay::LoadReport report;
    const std::string problem =
        replay::load_trace(arguments_.trace,
                           {.lenient = arguments_.lenient,
                            .block_tokens = arguments_.block_tokens,
                            .progress = [this](uint64_t lines) { progress_.show_lines(lines); }},
                           trace_, report);
    progress_.clear();
    if (!problem.empty()) {
      const bool helps = !arguments_.lenient && problem.find("line ") != std::string::npos;
      return fail(problem + (helps ? " (--lenient leaves such lines out)" : ""), 1);
    }
    if (report.skipped != 0) {
      std::fprintf(stderr, "stemma replay: left out %s of %s lines; the first:\n",
                   format_count(report.skipped).c_str(), format_count(report.lines).c_str());
      for (const std::string& one : report.first_problems) {
        std::fprintf(stderr, "  %s\n", one.c_str());
      }
    }
    return {};
  }

  std::string replay_all() {
    replay::SweepOptions options;
    options.policies = arguments_.policies;
    options.capacities = capacities_;
    options.hints = arguments_.hints;
    options.threads =
        arguments_.threads != 0 ? arguments_.threads : std::thread::hardware_concurrency();
    options.keep_request_hits = !arguments_.report.empty() || !arguments_.model.tiers.empty();
    options.progress = [this](double part) { progress_.show("replaying", part); };
    std::string problem = sweep(trace_, options, results_);
    if (problem.empty() && !arguments_.model.tiers.empty()) problem = replay_tiers(options);
    progress_.clear();
    return problem;
  }

  // For every result, replays again with one more tier below the device each time.
  std::string replay_tiers(const replay::SweepOptions& options) {
    const uint64_t block_bytes = arguments_.model.kv_bytes_per_token * trace_.block_tokens;
    for (const ReplayResult& device : results_) {
      std::vector<ReplayResult> below;
      uint64_t capacity = device.capacity_blocks;
      for (const replay::TierModel& tier : arguments_.model.tiers) {
        capacity = std::min<uint64_t>(capacity + tier.bytes / block_bytes, trace_.unique_blocks);
        capacity = std::max(capacity, device.capacity_blocks);
        ReplayResult level;
        std::string problem = replay::replay(trace_,
                                             {.policy = device.policy,
                                              .capacity_blocks = capacity,
                                              .hints = options.hints,
                                              .keep_request_hits = true},
                                             level);
        if (!problem.empty()) return problem;
        below.push_back(std::move(level));
      }
      std::vector<const ReplayResult*> levels{&device};
      for (const ReplayResult& level : below) levels.push_back(&level);
      ttfts_.push_back(expected_ttft(trace_, arguments_.model, levels));
      progress_.show("tiers",
                     static_cast<double>(ttfts_.size()) / static_cast<double>(results_.size()));
    }
    return {};
  }

  void print_json() const {
    std::fputs("[", stdout);
    for (size_t i = 0; i < results_.size(); ++i) {
      const ReplayResult& r = results_[i];
      const auto u = [](uint64_t n) { return static_cast<unsigned long long>(n); };
      std::printf(
          "%s\n  {\"trace\":%s,\"policy\":\"%s\",\"hints\":%s,\"capacity_blocks\":%llu,"
          "\"requests\":%llu,\"block_refs\":%llu,\"block_hits\":%llu,\"hit_ratio\":%.6f,"
          "\"cost_weighted_hit_ratio\":%.6f,\"evictions\":%llu,\"seconds\":%.6f",
          i == 0 ? "" : ",", json_string(trace_.name).c_str(), r.policy.c_str(),
          r.hints ? "true" : "false", u(r.capacity_blocks), u(r.requests), u(r.block_refs),
          u(r.block_hits), r.hit_ratio(), r.weighted_hit_ratio(), u(r.evictions), r.seconds);
      if (!ttfts_.empty()) {
        std::printf(",\"ttft_mean_ms\":%.3f,\"ttft_p50_ms\":%.3f,\"ttft_p95_ms\":%.3f",
                    1e3 * ttfts_[i].mean_s, 1e3 * ttfts_[i].p50_s, 1e3 * ttfts_[i].p95_s);
      }
      std::fputs("}", stdout);
    }
    std::fputs("\n]\n", stdout);
  }

  std::string size(uint64_t blocks) const {
    const uint64_t bytes = arguments_.model.kv_bytes_per_token * trace_.block_tokens;
    return bytes == 0 ? format_count(blocks) + " blocks" : format_bytes(blocks * bytes);
  }

  void print_table() const {
    const double hours =
        static_cast<double>(trace_.requests.back().time_ns - trace_.requests.front().time_ns) /
        3.6e12;
    std::printf(
        "%s: %s requests in %.1f hours, %s block references, %s different blocks of %u tokens",
        trace_.name.c_str(), format_count(trace_.requests.size()).c_str(), hours,
        format_count(trace_.block_refs).c_str(), format_count(trace_.unique_blocks).c_str(),
        trace_.block_tokens);
    if (arguments_.model.kv_bytes_per_token != 0) {
      std::printf(" (%s)", size(trace_.unique_blocks).c_str());
    }
    std::printf("\n\nblocks found cached, in %% of those asked for; %s hints\n\n",
                arguments_.hints ? "with" : "without");
    print_rows([&](const ReplayResult& r, char* text, size_t bytes) {
      std::snprintf(text, bytes, "%.2f", 100 * r.hit_ratio());
    });
    std::printf("\nthe same, deep blocks weighing more (1 + depth in tokens / 32768)\n\n");
    print_rows([&](const ReplayResult& r, char* text, size_t bytes) {
      std::snprintf(text, bytes, "%.2f", 100 * r.weighted_hit_ratio());
    });
    if (!ttfts_.empty()) print_ttft();
    if (const auto sentence = recommendation()) std::printf("\n%s\n", sentence->c_str());
  }

  void print_ttft() const {
    const replay::Ttft none = expected_ttft(trace_, arguments_.model, {});
    std::printf("\nexpected time to first token, mean (p95) in ms; without a cache %.0f (%.0f)\n\n",
                1e3 * none.mean_s, 1e3 * none.p95_s);
    print_rows([&](const ReplayResult& r, char* text, size_t bytes) {
      const replay::Ttft& ttft = ttfts_[static_cast<size_t>(&r - results_.data())];
      std::snprintf(text, bytes, "%.0f (%.0f)", 1e3 * ttft.mean_s, 1e3 * ttft.p95_s);
    });
  }

  template <class Write>
  void print_rows(Write&& write) const {
    std::printf("  %-26s", "capacity");
    for (const std::string& policy : arguments_.policies) std::printf(" %14s", policy.c_str());
    std::printf("\n");
    for (const uint64_t capacity : capacities_) {
      char part[64];
      std::snprintf(
          part, sizeof part, "%6.2f %%  %s",
          100.0 * static_cast<double>(capacity) / std::max<uint32_t>(1, trace_.unique_blocks),
          size(capacity).c_str());
      std::printf("  %-26s", part);
      for (const std::string& policy : arguments_.policies) {
        char text[64] = "";
        if (const ReplayResult* r = find_result(results_, policy, capacity); r != nullptr) {
          write(*r, text, sizeof text);
        }
        std::printf(" %14s", text);
      }
      std::printf("\n");
    }
  }

  // Names the policy to use: the default, or the first that is not a theoretical bound.
  std::optional<std::string> recommendation() const {
    const std::string policy = replay::recommended_policy(arguments_.policies);
    if (policy.empty()) return {};
    std::vector<const ReplayResult*> curve;
    for (const uint64_t capacity : capacities_) {
      curve.push_back(find_result(results_, policy, capacity));
    }
    return policy + ": " +
           to_sentence(recommend(curve, trace_.unlimited_ratio()),
                       [&](uint64_t blocks) { return size(blocks); });
  }

  int write_report() {
    const std::string page =
        replay::report_page({.trace = trace_,
                             .results = results_,
                             .policies = arguments_.policies,
                             .capacities = capacities_,
                             .kv_bytes_per_token = arguments_.model.kv_bytes_per_token});
    std::ofstream file(arguments_.report, std::ios::binary | std::ios::trunc);
    file << page;
    file.close();
    if (!file) return fail("cannot write '" + arguments_.report + "'", 1);
    std::fprintf(stderr, "stemma replay: the report is in %s\n", arguments_.report.c_str());
    return 0;
  }

  const ReplayArguments& arguments_;
  ReplayProgress progress_;
  Trace trace_;
  std::vector<uint64_t> capacities_;
  std::vector<ReplayResult> results_;
  std::vector<replay::Ttft> ttfts_;  // One for each of results_, with --tiers.
};

}  // namespace

int run_replay(std::span<const std::string_view> words) {
  ReplayArguments arguments;
  const std::string problem = parse_replay(words, arguments);
  if (arguments.help) {
    std::string help = replay::kReplayHelp;
    std::string names;
    for (const std::string_view name : retain::policy_names()) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    constexpr std::string_view kMark = "%POLICIES%";
    help.replace(help.find(kMark), kMark.size(), names);
    std::fputs(help.c_str(), stdout);
    return 0;
  }
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma replay: %s (see 'stemma replay --help')\n", problem.c_str());
    return 2;
  }
  return Run(arguments).go();
}

}  // namespace stemma::cli
