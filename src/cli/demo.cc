#include "cli/demo.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/demo_scenes.h"
#include "flags/flags.h"

namespace stemma::cli {
namespace {

constexpr const char* kDemoHelp =
    R"(usage: stemma demo [--requests N] [--seed N] [--json]

Runs a small transformer (random weights, on the CPU) over prompts that share prefixes, once with
the cache and once with the cache switched off, and compares the logits of every sampled position
bit by bit.

  --requests N  about how many requests, 10 to 100000 (500: about 15 seconds)
  --seed N      another number gives other prompts and other weights (1)
  --json        prints the table as one JSON object on standard output, and nothing else

The times are those of this small model. They matter less than how much was reused, and that the
logits are exact.

Exit codes: 0 all logits identical, 1 not, 2 bad arguments.
)";

struct DemoArguments {
  uint64_t requests = 500;
  uint64_t seed = 1;
  bool json = false;
  bool help = false;
};

// Returns an empty string, or an error message.
std::string parse(std::span<const std::string_view> words, DemoArguments& out) {
  flags::Flags flags;
  flags.whole("--requests", out.requests, decltype(out.requests){10},
              decltype(out.requests){100'000});
  flags.whole("--seed", out.seed, decltype(out.seed){0});
  flags.on("--json", out.json);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

// Shows the progress on standard error if that is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(uint64_t total) : total_(total), shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void scene(const std::string& name) { name_ = name; }
  void advance() {
    ++done_;
    if (!shown_) return;
    constexpr uint64_t kWidth = 32;
    const uint64_t filled = kWidth * std::min(done_, total_) / total_;
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    std::fprintf(stderr, "\r\033[K  [%s] %3llu %%  %s", bar.c_str(),
                 static_cast<unsigned long long>(100 * std::min(done_, total_) / total_),
                 name_.c_str());
    std::fflush(stderr);
  }

 private:
  uint64_t total_;
  uint64_t done_ = 0;
  bool shown_;
  std::string name_;
};

// Formats 12345678 as 12,345,678.
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_row(const std::string& name, const SceneResult& r) {
  std::printf("%-15s %8s %11s %11s %5.1f %% %10s %8.2f s %8.2f s %7.1fx   %s\n", name.c_str(),
              grouped(r.requests).c_str(), grouped(r.prompt_tokens).c_str(),
              grouped(r.reused_tokens).c_str(), percent(r.reused_tokens, r.prompt_tokens),
              grouped(r.computed_tokens).c_str(), r.seconds, r.seconds_without, r.speed_up(),
              r.different == 0 ? "identical" : "DIFFERENT");
}

void print_json_row(const char* indent, const std::string& name, const SceneResult& r) {
  const auto u = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "%s{\"name\": \"%s\", \"requests\": %llu, \"prompt_tokens\": %llu, \"reused_tokens\": %llu, "
      "\"computed_tokens\": %llu, \"computed_tokens_without\": %llu, \"answered_tokens\": %llu, "
      "\"logits_hits\": %llu, \"forks\": %llu, \"seconds\": %.6f, \"seconds_without\": %.6f, "
      "\"speed_up\": %.3f, \"logits_compared\": %llu, \"logits_different\": %llu}",
      indent, name.c_str(), u(r.requests), u(r.prompt_tokens), u(r.reused_tokens),
      u(r.computed_tokens), u(r.computed_tokens_without), u(r.answered_tokens), u(r.logits_hits),
      u(r.forks), r.seconds, r.seconds_without, r.speed_up(), u(r.logits), u(r.different));
}

void add(SceneResult& sum, const SceneResult& r) {
  sum.requests += r.requests;
  sum.prompt_tokens += r.prompt_tokens;
  sum.reused_tokens += r.reused_tokens;
  sum.computed_tokens += r.computed_tokens;
  sum.computed_tokens_without += r.computed_tokens_without;
  sum.answered_tokens += r.answered_tokens;
  sum.logits_hits += r.logits_hits;
  sum.forks += r.forks;
  sum.seconds += r.seconds;
  sum.seconds_without += r.seconds_without;
  sum.logits += r.logits;
  sum.different += r.different;
}

void print_table(const std::vector<Scene>& scenes, const std::vector<SceneResult>& results,
                 const SceneResult& sum) {
  std::printf("%-15s %8s %11s %11s %7s %10s %10s %10s %8s   %s\n", "", "requests", "in prompts",
              "reused", "", "computed", "with cache", "without", "speed-up", "logits");
  for (size_t i = 0; i < scenes.size(); ++i) print_row(scenes[i].name, results[i]);
  std::printf("%s\n", std::string(111, '-').c_str());
  print_row("together", sum);
  std::printf("\n");
  for (const Scene& scene : scenes) {
    std::printf("  %-15s %s\n", scene.name.c_str(), scene.about.c_str());
  }
  if (sum.different == 0) {
    std::printf(
        "\nAll %s logits are bit-identical with and without the cache. %s prompts needed "
        "no forward pass.\n",
        grouped(sum.logits).c_str(), grouped(sum.logits_hits).c_str());
  } else {
    std::printf("\n%s of %s logits differ: this is a bug.\n", grouped(sum.different).c_str(),
                grouped(sum.logits).c_str());
  }
}

}  // namespace

int run_demo(std::span<const std::string_view> words) {
  DemoArguments arguments;
  if (const std::string wrong = parse(words, arguments); !wrong.empty()) {
    std::fprintf(stderr, "stemma demo: %s\nTry 'stemma demo --help'.\n", wrong.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kDemoHelp, stdout);
    return 0;
  }
  const std::vector<Scene> scenes =
      make_scenes(static_cast<uint32_t>(arguments.requests), arguments.seed);
  uint64_t requests = 0;
  for (const Scene& scene : scenes) requests += scene.requests();
  if (!arguments.json) {
    std::printf("A small transformer over Stemma, %s requests, with the cache and without it.\n\n",
                grouped(requests).c_str());
    std::fflush(stdout);
  }

  std::vector<SceneResult> results;
  SceneResult sum;
  {
    ProgressLine line(2 * requests);
    for (const Scene& scene : scenes) {
      line.scene(scene.name);
      results.push_back(run_scene(scene, [&] { line.advance(); }));
      add(sum, results.back());
    }
  }
  if (!arguments.json) {
    print_table(scenes, results, sum);
  } else {
    std::printf("{\n  \"seed\": %llu,\n  \"identical\": %s,\n  \"scenes\": [\n",
                static_cast<unsigned long long>(arguments.seed),
                sum.different == 0 ? "true" : "false");
    for (size_t i = 0; i < scenes.size(); ++i) {
      print_json_row("    ", scenes[i].name, results[i]);
      std::printf("%s\n", i + 1 < scenes.size() ? "," : "");
    }
    std::printf("  ],\n  \"together\":\n");
    print_json_row("    ", "together", sum);
    std::printf("\n}\n");
  }
  return sum.different == 0 ? 0 : 1;
}

}  // namespace stemma::cli
