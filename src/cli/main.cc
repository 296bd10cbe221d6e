// The program `stemma`: finds the subcommand and hands the rest of the line to it.
#include <cstdio>
#include <new>
#include <string_view>
#include <vector>

#include "bench/harness.h"
#include "cli/check_device.h"
#include "cli/demo.h"
#ifdef STEMMA_HAS_TIER_DISK
#include "cli/inspect.h"
#endif
#ifdef STEMMA_HAS_GGUF
#include "cli/make_model.h"
#endif
#include "cli/replay.h"
#include "cli/serve.h"
#include "cli/trace.h"
#include "stemma/version.h"

namespace {

constexpr const char* kProgramHelp =
    R"(usage: stemma COMMAND [ARGUMENTS]
       stemma --help | --version

Stemma remembers which prefixes of which prompts an LLM engine has computed, and in which KV blocks.

commands:
  serve       serves a GGUF model over HTTP, and reuses every prefix that it still holds
  demo        runs a small model over prompts that share prefixes, with the cache and without it
  replay      plays recorded requests through the cache: which policy is best, how much memory helps
  trace       records a server's traffic to replay, makes traces, and converts them
  bench       measures the cache on this machine and says which limits hold
)"
#ifdef STEMMA_HAS_TIER_DISK
    R"(  inspect     shows what lies in the directory of a disk tier, or of a shared one
)"
#endif
#ifdef STEMMA_HAS_GGUF
    R"(  make-model  writes a small model with random weights, as a GGUF file for llama.cpp
)"
#endif
    R"(
  stemma serve --model FILE           runs an OpenAI-compatible server on port 8080
  stemma demo                         shows what is reused, what it saves, and that it is exact
  stemma replay trace.jsonl.zst       prints hit ratios by policy and size, and the best possible
  stemma bench --list                 lists the benchmarks
  stemma bench --quick                runs all of them, in under 20 seconds
  stemma bench --only full_hit        runs those whose names contain full_hit
  stemma bench --json > numbers.json  prints JSON, for programs
  stemma bench sequences              serves conversations by our policy and by others

'stemma COMMAND --help' tells more.
)";

struct Command {
  std::string_view name;
  int (*run)(std::span<const std::string_view> arguments);
};

constexpr Command kCommands[] = {
    {"serve", stemma::cli::run_serve},           {"demo", stemma::cli::run_demo},
    {"replay", stemma::cli::run_replay},         {"trace", stemma::cli::run_trace},
    {"bench", stemma::bench::run_bench},         {"check-device", stemma::cli::run_check_device},
#ifdef STEMMA_HAS_TIER_DISK
    {"inspect", stemma::cli::run_inspect},
#endif
#ifdef STEMMA_HAS_GGUF
    {"make-model", stemma::cli::run_make_model},
#endif
};

int run(std::span<const std::string_view> words) {
  if (words.empty()) {
    std::fputs(kProgramHelp, stderr);
    return 2;
  }
  const std::string_view first = words.front();
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(kProgramHelp, stdout);
    return 0;
  }
  if (first == "--version") {
    std::printf("stemma %s\n", stemma::version_string());
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == first) return command.run(words.subspan(1));
  }
  std::fprintf(stderr, "stemma: there is no command '%.*s'\nTry 'stemma --help'.\n",
               static_cast<int>(first.size()), first.data());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  int code = 1;
  try {
    code = run(words);
  } catch (const std::bad_alloc&) {
    std::fputs("stemma: the system gives no more memory\n", stderr);
  }
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("stemma: standard output could not be written\n", stderr);
    return code == 0 ? 1 : code;
  }
  return code;
}
