#include "bench/serve/serve_bench.h"

#if defined(STEMMA_HAS_SERVER) && defined(STEMMA_HAS_ENGINE_LLAMA) && defined(STEMMA_HAS_GGUF)

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/sequences/workloads.h"
#include "bench/serve/bench_server.h"
#include "bench/serve/timed_model.h"
#include "engine/llama/llama_model.h"
#include "flags/flags.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"
#include "support/http_client.h"

namespace stemma::bench::serve {

namespace {

using sequences::Request;
using sequences::Role;
using sequences::Workload;
using Time = std::chrono::steady_clock;

constexpr const char* kServeHelp =
    R"(usage: stemma bench serve [--model KIND]... [--only WORKLOAD]... [--requests N] [--dim N] [--layers N] [--seed N]

Sends workloads of conversations to `stemma serve` over HTTP, on a generated model, with the cache on, with
reuse within each sequence only (as slots do), and with the cache off: time to the first token, tokens
evaluated, bytes stored. Then segments against whole states, and what the server itself costs a token.

  --model KIND     full, window or hybrid; otherwise all
  --only WORKLOAD  only workloads whose names contain it
  --requests N     the first N requests of each (40)
  --dim, --layers  of the model (512, 8); dim is a multiple of 64
  --seed N         other conversations of the same kind
)";

struct ServeArguments {
  std::vector<std::string> models = {"full", "window", "hybrid"};
  std::vector<std::string> only;
  uint64_t requests = 40;
  uint64_t dim = 512;
  uint64_t layers = 8;
  uint64_t seed = 1;
  bool help = false;
};

enum class Mode : uint8_t { on, slots, off, whole_states };

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::on: return "on";
    case Mode::slots: return "slots";
    case Mode::off: return "off";
    case Mode::whole_states: return "whole states";
  }
  return "?";
}

// A request as a conversation, in letters.
std::string body_of(const Request& request) {
  std::string body = R"({"messages":[)";
  uint32_t begin = 0;
  for (size_t m = 0; m < request.messages.size(); ++m) {
    const sequences::Message& message = request.messages[m];
    if (m != 0) body += ',';
    body += R"({"role":")";
    body += message.role == Role::system      ? "system"
            : message.role == Role::assistant ? "assistant"
                                              : "user";
    body += R"(","content":")";
    for (uint32_t i = begin + sequences::kHeaderTokens; i < message.end; ++i) {
      body += static_cast<char>('a' + request.prompt[i] % 26);
    }
    body += "\"}";
    begin = message.end;
  }
  body +=
      R"(],"max_tokens":1,"temperature":0,"stream":true,"stream_options":{"include_usage":true})";
  if (!request.session.empty()) body += R"(,"prompt_cache_key":")" + request.session + "\"";
  return body + "}";
}

struct Row {
  std::vector<double> first_token_ms;
  uint64_t prompt_tokens = 0;
  uint64_t evaluated_tokens = 0;
  uint64_t stored_bytes = 0;
  uint64_t captured_bytes = 0;
  TimedModel::Moves saves;
  TimedModel::Moves loads;

  double percentile(double part) const {
    if (first_token_ms.empty()) return 0;
    std::vector<double> sorted = first_token_ms;
    std::ranges::sort(sorted);
    return sorted[std::min(sorted.size() - 1,
                           static_cast<size_t>(part * static_cast<double>(sorted.size())))];
  }
};

Row serve(const std::string& file, const Workload& workload, const ServeArguments& arguments,
          Mode mode) {
  engine::LlamaOptions options;
  options.path = file;
  options.model_id = "bench";
  options.sequences = workload.sequences;
  options.context_tokens = workload.context_tokens;
  options.unified = mode != Mode::whole_states;
  if (!options.unified) options.context_tokens = workload.context_tokens / workload.sequences;
  options.shares = mode != Mode::slots;
  std::string why;
  const auto llama = engine::LlamaModel::load(options, why);
  if (llama == nullptr) {
    std::fprintf(stderr, "stemma bench serve: %s\n", why.c_str());
    std::exit(1);
  }
  TimedModel model(*llama);
  server::SchedulerOptions scheduling;
  scheduling.reuse = mode != Mode::off;
  if (mode == Mode::off) scheduling.cache.reuse = Reuse::disabled;
  Row row;
  Server server(model, scheduling);
  test::HttpClient client(server.http->port(), std::chrono::minutes(5));
  const size_t count = std::min<size_t>(arguments.requests, workload.requests.size());
  for (size_t i = 0; i < count; ++i) {
    const std::string body = body_of(workload.requests[i]);
    const Answer answer = ask(client, body);
    row.first_token_ms.push_back(answer.first_token_ms);
    row.prompt_tokens += answer.number("prompt_tokens");
    row.evaluated_tokens += answer.number("evaluated_tokens");
    if (isatty(2) != 0) {
      std::fprintf(stderr, "\r%-14s %-12s %3zu of %zu ", workload.name.c_str(), name_of(mode),
                   i + 1, count);
    }
    // Clients take time to read and write; meanwhile waiting captures are saved.
    server.settle();
  }
  if (isatty(2) != 0) std::fprintf(stderr, "\r%60s\r", "");
  const SequenceStats stats = server.scheduler->cache().stats();
  row.stored_bytes = stats.saved_bytes;
  row.captured_bytes = stats.captured_bytes;
  row.saves = model.saves();
  row.loads = model.loads();
  return row;
}

double per(double sum, uint64_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); }

// The server's own cost, with an engine that costs nothing.
void overhead() {
  test::FakeModel model(test::full_engine(), 512);
  Server server(model, {});
  std::printf("\nserver alone: an engine that computes nothing, answers of 200 tokens\n");
  for (const uint32_t clients : {1U, 4U}) {
    std::vector<std::thread> threads;
    std::atomic<uint64_t> tokens = 0;
    const Time::time_point begin = Time::now();
    for (uint32_t c = 0; c < clients; ++c) {
      threads.emplace_back([&, c] {
        test::HttpClient client(server.http->port(), std::chrono::minutes(1));
        for (int i = 0; i < 5; ++i) {
          const std::string body = R"({"prompt":"request )" + std::to_string(c * 100 + i) +
                                   R"(","max_tokens":200,"ignore_eos":true,"stream":true})";
          client.send(test::request_text("POST", "/v1/completions", body));
          client.read_head();
          while (client.read_piece()) {
          }
          tokens += 200;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double us = std::chrono::duration<double, std::micro>(Time::now() - begin).count();
    std::printf("  %u client%s  %6.1f us a token\n", clients, clients == 1 ? " " : "s",
                us / static_cast<double>(tokens));
  }
}

// Returns an empty string, or what is wrong.
std::string parse(std::span<const std::string_view> words, ServeArguments& out) {
  std::vector<std::string> models;
  flags::Flags flags;
  flags.whole("--requests", out.requests);
  flags.whole("--dim", out.dim);
  flags.whole("--layers", out.layers);
  flags.whole("--seed", out.seed, uint64_t{0});
  flags.take("--only", [&](std::string_view value) {
    out.only.emplace_back(value);
    return std::string();
  });
  flags.choices("--model", models, {{"full", "full"}, {"window", "window"}, {"hybrid", "hybrid"}});
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  if (!models.empty()) out.models = models;
  return wrong;
}

}  // namespace

int run_serve_bench(std::span<const std::string_view> words) {
  ServeArguments arguments;
  if (const std::string wrong = parse(words, arguments); !wrong.empty()) {
    std::fprintf(stderr, "stemma bench serve: %s\nTry 'stemma bench serve --help'.\n",
                 wrong.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kServeHelp, stdout);
    return 0;
  }
  std::string folder = std::filesystem::temp_directory_path() / "stemma-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "stemma bench serve: no folder for a model\n");
    return 1;
  }
  std::printf(
      "%u layers of %u, heads of %u, F16; first %u requests of each workload; TTFT at the client\n",
      static_cast<uint32_t>(arguments.layers), static_cast<uint32_t>(arguments.dim),
      head_width(arguments.dim), static_cast<uint32_t>(arguments.requests));
  for (const std::string& kind : arguments.models) {
    const std::string file = folder + "/" + kind + ".gguf";
    if (!write_model(kind, arguments.dim, arguments.layers, file)) return 1;
    std::printf("\n%s\n%-14s %-6s %9s %9s %10s %10s %10s %9s\n", kind.c_str(), "workload", "cache",
                "p50 ms", "p95 ms", "prompts", "evaluated", "stored KB", "off/p50");
    for (const Workload& workload : sequences::all_workloads(arguments.seed)) {
      if (!arguments.only.empty() &&
          std::ranges::none_of(arguments.only, [&](const std::string& part) {
            return workload.name.find(part) != std::string::npos;
          })) {
        continue;
      }
      const Row off = serve(file, workload, arguments, Mode::off);
      for (const Mode mode : {Mode::on, Mode::slots, Mode::off}) {
        const Row row = mode == Mode::off ? off : serve(file, workload, arguments, mode);
        std::printf("%-14s %-6s %9.1f %9.1f %10llu %10llu %10llu %8.1fx\n", workload.name.c_str(),
                    name_of(mode), row.percentile(0.5), row.percentile(0.95),
                    static_cast<unsigned long long>(row.prompt_tokens),
                    static_cast<unsigned long long>(row.evaluated_tokens),
                    static_cast<unsigned long long>(row.stored_bytes / 1000),
                    off.percentile(0.5) / std::max(1e-9, row.percentile(0.5)));
        std::fflush(stdout);
      }
      if (!workload.much_shared) continue;
      for (const Mode mode : {Mode::on, Mode::whole_states}) {
        const Row row = serve(file, workload, arguments, mode);
        const uint64_t turns = row.first_token_ms.size();
        std::printf(
            "  %-13s a turn: saved %8.1f KB in %6.3f ms, restored %8.1f KB in %6.3f ms; stored "
            "%llu KB\n",
            mode == Mode::on ? "segments" : "whole states",
            per(static_cast<double>(row.saves.bytes) / 1000, turns),
            per(static_cast<double>(row.saves.ns) * 1e-6, turns),
            per(static_cast<double>(row.loads.bytes) / 1000, turns),
            per(static_cast<double>(row.loads.ns) * 1e-6, turns),
            static_cast<unsigned long long>(row.stored_bytes / 1000));
      }
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  overhead();
  return 0;
}

}  // namespace stemma::bench::serve

#else

#include <cstdio>

namespace stemma::bench::serve {

int run_serve_bench(std::span<const std::string_view> /*words*/) {
  std::fputs("stemma bench serve: this program was built without llama.cpp or without the server\n",
             stderr);
  return 1;
}

}  // namespace stemma::bench::serve

#endif
