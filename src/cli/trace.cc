#include "cli/trace.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "cli/trace_record.h"
#include "flags/flags.h"
#include "replay/sizes.h"
#include "replay/synthetic.h"
#include "replay/trace.h"

namespace stemma::cli {
namespace {

constexpr const char* kTraceHelp =
    R"(usage: stemma trace record URL [OPTIONS]
       stemma trace make KIND [OPTIONS]
       stemma trace convert TRACE [OPTIONS]

record: records the requests to a running 'stemma serve', until Ctrl-C, --seconds or the server's
end. The file says when each request came, how long its prompt and its answer were, how it ended,
and which blocks and sessions requests had in common, as numbers. It contains no text, no tokens, no
names, and nothing made from them.

make: generates a synthetic trace to replay, if you have recorded none. KIND is
  chat      conversations under a few system prompts, minutes between turns
  agents    long sessions of tool calls, seconds apart
  rag       questions about documents, some of which are asked about often
  mix       all of them through one cache

convert: writes any trace that 'stemma replay' reads in our own format, which is smaller and replaces
the trace's ids by numbers of its own.

  --out FILE         the file to write (standard output)
  --seconds N        record: stop after this many seconds (at Ctrl-C)
  --api-key-file F   record: a file whose first line is the server's key; or set STEMMA_API_KEY
  --requests N       make: how many requests (10000)
  --rate N           make: requests a second, on average (2)
  --seed N           make: another trace (1); equal arguments give equal traces
  --block-tokens N   tokens in a block (512); record: 16 to 1024; convert: tokens behind one of the
                     trace's ids
  --lenient          convert: leave out lines that cannot be used

  stemma trace record http://127.0.0.1:8080 --seconds 3600 --out hour.jsonl && stemma replay hour.jsonl
  stemma trace make agents --requests 2000 --out agents.jsonl && stemma replay agents.jsonl

Exit codes: 0 written, 1 not, 2 bad arguments.
)";

struct TraceArguments {
  std::string what;
  std::string subject;
  std::string out;
  replay::SyntheticOptions made;
  RecordOptions recorded;
  bool lenient = false;
};

// Returns an empty string, or an error message.
std::string parse(std::span<const std::string_view> words, TraceArguments& out) {
  flags::Flags flags;
  flags.text("--out", out.out);
  flags.text("--api-key-file", out.recorded.api_key_file);
  flags.whole("--seconds", out.recorded.seconds);
  flags.whole("--requests", out.made.requests);
  flags.whole("--block-tokens", out.made.block_tokens);
  flags.whole("--seed", out.made.seed, decltype(out.made.seed){0});
  flags.take("--rate", [&](std::string_view value) {
    const auto rate = replay::parse_number(value);
    out.made.requests_per_second = rate.value_or(0);
    return std::string(rate && *rate > 0 ? "" : "--rate needs a number above 0");
  });
  flags.on("--lenient", out.lenient);
  flags.words([&](std::string_view word) {
    std::string& target = out.what.empty() ? out.what : out.subject;
    if (!target.empty()) return "'" + std::string(word) + "' is too many";
    target = word;
    return std::string();
  });
  if (std::string wrong = flags.read(words); !wrong.empty()) return wrong;
  if (out.what != "make" && out.what != "convert" && out.what != "record") {
    return "what to do is missing: record, make or convert";
  }
  if (out.subject.empty()) {
    return out.what == "make"     ? "the kind is missing: chat, agents, rag or mix"
           : out.what == "record" ? "the server is missing: http://127.0.0.1:8080"
                                  : "the trace is missing: a file, or '-'";
  }
  const bool for_record = out.recorded.seconds != 0 || !out.recorded.api_key_file.empty();
  if (for_record && out.what != "record") return "--seconds and --api-key-file are for record";
  if (out.what == "make") {
    const auto kind = replay::parse_workload(out.subject);
    if (!kind) return "there is no kind '" + out.subject + "'; there are chat, agents, rag and mix";
    out.made.workload = *kind;
    if (out.made.block_tokens > replay::kMostTokens) return "--block-tokens is at most 2147483647";
    // A trace can cover a little more than 300 years.
    if (out.made.requests / out.made.requests_per_second > 1e9) {
      return "so many requests at that --rate take longer than 30 years";
    }
  }
  return {};
}

int write(const replay::Trace& trace, const std::string& out) {
  const std::string text = replay::write_trace(trace);
  if (out.empty() || out == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;  // main() checks whether all of it was written.
  }
  std::ofstream file(out, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    std::fprintf(stderr, "stemma trace: cannot write '%s'\n", out.c_str());
    return 1;
  }
  std::fprintf(stderr, "%s: %s requests, %s block references, %s different blocks\n", out.c_str(),
               replay::format_count(trace.requests.size()).c_str(),
               replay::format_count(trace.block_refs).c_str(),
               replay::format_count(trace.unique_blocks).c_str());
  return 0;
}

}  // namespace

int run_trace(std::span<const std::string_view> words) {
  for (const std::string_view word : words) {
    if (word != "--help" && word != "-h") continue;
    std::fputs(kTraceHelp, stdout);
    return 0;
  }
  TraceArguments arguments;
  if (const std::string problem = parse(words, arguments); !problem.empty()) {
    std::fprintf(stderr, "stemma trace: %s (see 'stemma trace --help')\n", problem.c_str());
    return 2;
  }
  if (arguments.what == "record") {
    arguments.recorded.url = arguments.subject;
    arguments.recorded.out = arguments.out;
    arguments.recorded.block_tokens = arguments.made.block_tokens;
    return run_record(arguments.recorded);
  }
  if (arguments.what == "make") return write(replay::make_trace(arguments.made), arguments.out);
  replay::Trace trace;
  replay::LoadReport report;
  const std::string problem = replay::load_trace(
      arguments.subject,
      {.lenient = arguments.lenient, .block_tokens = arguments.made.block_tokens}, trace, report);
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma trace: %s\n", problem.c_str());
    return 1;
  }
  if (report.skipped != 0) {
    std::fprintf(stderr, "stemma trace: left out %s of %s lines\n",
                 replay::format_count(report.skipped).c_str(),
                 replay::format_count(report.lines).c_str());
  }
  return write(trace, arguments.out);
}

}  // namespace stemma::cli
