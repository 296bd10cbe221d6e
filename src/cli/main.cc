// The program `stemma`: finds the subcommand and hands the rest of the line to it.
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/harness.h"
#include "cli/demo.h"
#include "stemma/version.h"

namespace {

constexpr const char* kHelp =
    R"(usage: stemma COMMAND [ARGUMENTS]
       stemma --help | --version

Stemma remembers which prefixes of which prompts an LLM engine has computed, and in which KV blocks.

commands:
  demo     a small model over prompts that share prefixes, with the cache and without it
  bench    measure the cache on this machine and say which limits hold

  stemma demo                         what is reused, what it saves, and that it is exact
  stemma bench --list                 what there is to measure
  stemma bench --quick                all of it, in under 20 seconds
  stemma bench --only full_hit        a part of it
  stemma bench --json > numbers.json  for a program to read
  stemma bench sequences              conversations, served by our policy and by others

'stemma COMMAND --help' tells more.
)";

struct Command {
  std::string_view name;
  int (*run)(std::span<const std::string_view> arguments);
};

constexpr Command kCommands[] = {
    {"demo", stemma::cli::run_demo},
    {"bench", stemma::bench::run_bench},
};

int run(std::span<const std::string_view> words) {
  if (words.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  const std::string_view first = words.front();
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(kHelp, stdout);
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
  const int code = run(words);
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fputs("stemma: standard output could not be written\n", stderr);
    return code == 0 ? 1 : code;
  }
  return code;
}
