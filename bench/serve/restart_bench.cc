// Question: after a restart, is a conversation's next turn answered sooner from the disk tier than
// by computing it again? Both servers are new, including the model, and get the same next turns
// alternately.
#include "bench/serve/serve_bench.h"

#if defined(STEMMA_HAS_SERVER) && defined(STEMMA_HAS_ENGINE_LLAMA) && defined(STEMMA_HAS_GGUF) && \
    defined(STEMMA_HAS_TIER_DISK)

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "bench/serve/bench_server.h"
#include "cli/serve_tiers.h"
#include "engine/llama/llama_model.h"
#include "flags/flags.h"

namespace stemma::bench::serve {

namespace {

constexpr const char* kRestartHelp =
    R"(usage: stemma bench restart [--dir DIR] [--rounds N] [--dim N] [--layers N]

Holds conversations with a server that has a disk tier, ends it, and asks a new one for their next turns: time
to the first token, beside that of a new server without a tier that computes everything. On generated models.

  --dir DIR        where to make a directory of its own, which is removed afterwards (.)
  --rounds N       conversations of each length (5)
  --dim, --layers  of the models (512, 8)
)";

struct RestartArguments {
  std::string dir = ".";
  uint64_t rounds = 5;
  uint64_t dim = 512;
  uint64_t layers = 8;
  bool help = false;
};

// Returns an empty string, or what is wrong.
std::string parse(std::span<const std::string_view> words, RestartArguments& out) {
  flags::Flags flags;
  flags.text("--dir", out.dir);
  flags.whole("--rounds", out.rounds);
  flags.whole("--dim", out.dim);
  flags.whole("--layers", out.layers);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

// One run of a server; with `disk`, over a disk tier.
struct Life {
  Life(const std::string& file, const std::string& disk) {
    std::string why;
    engine::LlamaOptions options;
    options.path = file;
    options.model_id = "bench";
    options.sequences = 2;
    options.context_tokens = 16384;
    model = engine::LlamaModel::load(options, why);
    server::SchedulerOptions scheduling;
    if (model != nullptr && !disk.empty()) {
      server::Config config;
      config.disk = disk;
      config.disk_bytes = uint64_t{1} << 30U;
      const EngineTraits& traits = model->sequences().traits();
      if (!cli::open_tiers(config, traits, 0, [](std::string_view) {}, tiers, why)) model = nullptr;
      scheduling.tiers = tiers.tiers.get();
      scheduling.cache.listener = tiers.tiers.get();
    }
    if (model == nullptr) {
      std::fprintf(stderr, "stemma bench restart: %s\n", why.c_str());
      std::exit(1);
    }
    server = std::make_unique<Server>(*model, scheduling);
    client = std::make_unique<test::HttpClient>(server->http->port(), std::chrono::minutes(5));
  }
  ~Life() {
    client.reset();
    server.reset();
    if (tiers.stack != nullptr) tiers.stack->flush(kNever);
  }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  std::unique_ptr<engine::LlamaModel> model;
  cli::ServeTiers tiers;
  std::unique_ptr<Server> server;
  std::unique_ptr<test::HttpClient> client;
};

std::string body_of(uint64_t tokens, uint64_t number, bool next) {
  std::string text;
  uint64_t state = tokens * 1000 + number;
  for (uint64_t i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += static_cast<char>('a' + (state >> 33U) % 26);
  }
  std::string body = R"({"messages":[{"role":"user","content":")" + text + R"("})";
  if (next) body += R"(,{"role":"assistant","content":"ok"},{"role":"user","content":"go on"})";
  return body +
         R"(],"max_tokens":1,"temperature":0,"stream":true,"stream_options":{"include_usage":true}})";
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

int run_restart_bench(std::span<const std::string_view> words) {
  RestartArguments arguments;
  if (const std::string wrong = parse(words, arguments); !wrong.empty()) {
    std::fprintf(stderr, "stemma bench restart: %s\nTry 'stemma bench restart --help'.\n",
                 wrong.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kRestartHelp, stdout);
    return 0;
  }
  std::string folder = arguments.dir + "/stemma-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "stemma bench restart: no folder in %s\n", arguments.dir.c_str());
    return 1;
  }
  std::printf(
      "%llu layers of %llu, F16; medians of %llu conversations\n\n%-8s %7s %10s %12s %7s "
      "%12s %10s\n",
      static_cast<unsigned long long>(arguments.layers),
      static_cast<unsigned long long>(arguments.dim),
      static_cast<unsigned long long>(arguments.rounds), "model", "tokens", "cold ms",
      "restarted ms", "faster", "tier's ms", "tier's KB");
  constexpr uint64_t kLengths[] = {256, 1024, 4096};
  for (const char* kind : {"full", "window", "hybrid"}) {
    const std::string file = folder + "/" + kind + ".gguf";
    const std::string disk = folder + "/" + kind;
    if (!write_model(kind, arguments.dim, arguments.layers, file)) return 1;
    {
      const Life before(file, disk);
      for (const uint64_t length : kLengths) {
        for (uint64_t i = 0; i < arguments.rounds; ++i) {
          ask(*before.client, body_of(length, i, false));
          before.server->settle();
        }
      }
    }
    const Life after(file, disk);
    const Life cold(file, "");
    for (const Life* life : {&after, &cold})
      ask(*life->client, body_of(64, 1, false));  // Warm code.
    for (const uint64_t length : kLengths) {
      std::vector<double> cold_ms, after_ms, tier_ms;
      uint64_t bytes = 0;
      for (uint64_t i = 0; i < arguments.rounds; ++i) {
        const std::string body = body_of(length, i, true);
        cold_ms.push_back(ask(*cold.client, body).first_token_ms);
        const Answer answer = ask(*after.client, body);
        after_ms.push_back(answer.first_token_ms);
        const size_t tier = answer.stream.rfind("\"tier\":{");
        const size_t at = tier == std::string::npos ? tier : answer.stream.find("\"ms\":", tier);
        if (at != std::string::npos) {
          tier_ms.push_back(std::strtod(answer.stream.c_str() + at + 5, nullptr));
          bytes += std::strtoull(answer.stream.c_str() + answer.stream.find("\"bytes\":", tier) + 8,
                                 nullptr, 10);
        }
        after.server->settle();
      }
      std::printf("%-8s %7llu %10.1f %12.1f %6.1fx %12.2f %10.0f\n", kind,
                  static_cast<unsigned long long>(length), median(cold_ms), median(after_ms),
                  median(cold_ms) / std::max(1e-9, median(after_ms)), median(tier_ms),
                  static_cast<double>(bytes) / 1000 / static_cast<double>(arguments.rounds));
      if (tier_ms.size() < arguments.rounds) {
        std::printf("  (%zu of %llu were computed)\n", arguments.rounds - tier_ms.size(),
                    static_cast<unsigned long long>(arguments.rounds));
      }
      std::fflush(stdout);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return 0;
}

}  // namespace stemma::bench::serve

#else

#include <cstdio>

namespace stemma::bench::serve {

int run_restart_bench(std::span<const std::string_view> /*words*/) {
  std::fputs(
      "stemma bench restart: this program was built without llama.cpp, the server or the disk "
      "tier\n",
      stderr);
  return 1;
}

}  // namespace stemma::bench::serve

#endif
