#include "bench/sequences/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "bench/sequences/judge.h"
#include "flags/flags.h"

namespace stemma::bench::sequences {
namespace {

constexpr const char* kHelp =
    R"(usage: stemma bench sequences [--json] [--model NAME]... [--memory NAME] [--only WORKLOAD]...
                              [--seed N] [--strict]

Serves seven workloads of conversations with our policy for opaque engines, with those of five other
caches and with llama-server's rules, all on the same fake engine with equal memory, and says which
limits hold. The engine has contents: a policy that hands out a wrong prefix is marked.

  --model NAME     full, window or hybrid; otherwise all
  --memory NAME    what is stored beside the engine's context: tight (half as much), normal (twice),
                   roomy (eight times) or unlimited (64 times); otherwise normal
  --only WORKLOAD  only workloads whose names contain it
  --seed N         other conversations of the same kind
  --json           an array of {"name","value","unit","limit","pass"} on standard output, nothing else
  --strict         exit code 1 when a limit is missed

Exit codes: 0 done, 1 we were wrong (or, with --strict, a limit was missed), 2 bad arguments.
)";

struct Arguments {
  std::vector<Model> models;
  std::vector<std::string> only;
  Memory memory = Memory::normal;
  uint64_t seed = 1;
  bool json = false;
  bool strict = false;
  bool help = false;
};

// Returns an empty string, or what is wrong.
std::string parse(std::span<const std::string_view> words, Arguments& out) {
  const auto named = [](const auto& values) {
    std::vector<std::pair<std::string_view, std::decay_t<decltype(values[0])>>> names;
    for (const auto value : values) names.emplace_back(to_string(value), value);
    return names;
  };
  flags::Flags flags;
  flags.take("--only", [&](std::string_view value) {
    out.only.emplace_back(value);
    return std::string();
  });
  flags.choices("--model", out.models, named(kModels));
  flags.choice("--memory", out.memory, named(kMemories));
  flags.whole("--seed", out.seed, uint64_t{0});
  flags.on("--json", out.json);
  flags.on("--strict", out.strict);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  if (out.models.empty()) out.models.assign(kModels.begin(), kModels.end());
  return wrong;
}

using Figure = std::function<uint64_t(const Outcome&)>;

void print_line(const std::string& name, const std::vector<std::string>& cells) {
  std::printf("| %-24s", name.c_str());
  for (const std::string& cell : cells) std::printf(" | %14s", cell.c_str());
  std::printf(" |\n");
}

void print_figures(const Comparison& comparison, const char* title, const Figure& figure,
                   const std::vector<uint64_t>* minimum) {
  const size_t count = comparison.workloads.size();
  print_line(title, comparison.workloads);
  print_line("---", std::vector<std::string>(count, "---:"));
  if (minimum != nullptr) {
    std::vector<std::string> cells;
    for (const uint64_t tokens : *minimum) cells.push_back(std::to_string(tokens));
    print_line("minimum", cells);
  }
  for (const Line& line : comparison.lines) {
    std::vector<std::string> cells;
    for (const Outcome& outcome : line.outcomes) {
      const std::string number = std::to_string(figure(outcome));
      cells.push_back(outcome.wrong_requests > 0 ? "WRONG " + number : number);
    }
    print_line(line.name, cells);
  }
  std::printf("\n");
}

void print_limits(std::span<const Row> rows) {
  size_t limits = 0;
  size_t held = 0;
  for (const Row& row : rows) {
    const bool limited = row.sense != Sense::report || row.wrong;
    limits += limited ? 1 : 0;
    held += limited && row.passes() ? 1 : 0;
    std::string text = row.wrong ? "WRONG" : !limited ? "-" : row.passes() ? "pass" : "MISS";
    if (!row.baselines.empty()) {
      const Baseline& best = row.baselines.front();
      text += "  best: " + best.name + " " + std::to_string(std::lround(best.value)) + ";";
    }
    const bool whole = row.value == std::floor(row.value);
    std::printf("%-32s %9.*f %-6s  %s %s\n", row.name.c_str(), whole ? 0 : 2, row.value,
                row.unit.c_str(), text.c_str(), row.note.c_str());
  }
  std::printf("\n%zu of %zu limits hold\n", held, limits);
}

std::vector<Workload> chosen(const Arguments& arguments) {
  std::vector<Workload> workloads = all_workloads(arguments.seed);
  if (arguments.only.empty()) return workloads;
  std::erase_if(workloads, [&](const Workload& workload) {
    return std::ranges::none_of(arguments.only, [&](const std::string& part) {
      return workload.name.find(part) != std::string::npos;
    });
  });
  return workloads;
}

void print_workloads(std::span<const Workload> workloads) {
  for (const Workload& workload : workloads) {
    std::printf("%-14s %4zu requests, %7llu prompt tokens, longest %5u: %s\n",
                workload.name.c_str(), workload.requests.size(),
                static_cast<unsigned long long>(workload.prompt_tokens()),
                workload.longest_tokens(), workload.about.c_str());
  }
  std::printf("\n");
}

}  // namespace

void print(const Comparison& comparison) {
  std::printf("Model: %s. Memory: %s.\n\n", to_string(comparison.model),
              to_string(comparison.memory));
  print_figures(
      comparison, "tokens evaluated", [](const Outcome& o) { return o.evaluated; },
      &comparison.minimum);
  print_figures(
      comparison, "MB stored, most",
      [](const Outcome& o) {
        return static_cast<uint64_t>(static_cast<double>(o.stored_bytes_peak) * kByteFactor * 1e-6);
      },
      nullptr);
  print_figures(
      comparison, "seconds beside answers",
      [](const Outcome& o) { return o.spent_ns / 1'000'000'000; }, nullptr);
}

int run_sequences(std::span<const std::string_view> words) {
  Arguments arguments;
  if (const std::string problem = parse(words, arguments); !problem.empty()) {
    std::fprintf(stderr, "stemma bench sequences: %s\nTry 'stemma bench sequences --help'.\n",
                 problem.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const std::vector<Workload> workloads = chosen(arguments);
  if (workloads.empty()) {
    std::fprintf(stderr, "stemma bench sequences: no workload has such a name\n");
    return 2;
  }
  if (!arguments.json) print_workloads(workloads);
  Sheet sheet(Settings{});
  for (const Model model : arguments.models) {
    const Comparison comparison = compare(workloads, model, arguments.memory);
    if (!arguments.json) print(comparison);
    std::fflush(stdout);
    judge_tokens(comparison, sheet);
    for (const Workload& workload : workloads) {
      if (workload.much_shared) judge_bytes(workload, model, sheet);
    }
  }
  const std::span<const Row> rows = sheet.rows();
  if (arguments.json) {
    print_json(rows);
  } else {
    print_limits(rows);
  }
  const bool wrong = std::ranges::any_of(rows, &Row::wrong);
  const bool all_hold = std::ranges::all_of(rows, &Row::passes);
  return wrong || (arguments.strict && !all_hold) ? 1 : 0;
}

}  // namespace stemma::bench::sequences
