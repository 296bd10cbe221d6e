// `stemma serve`: serves a model over HTTP until it is asked to end.
#include "cli/serve.h"

#if defined(STEMMA_HAS_SERVER) && defined(STEMMA_HAS_ENGINE_LLAMA)

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/check_device.h"
#include "cli/notify.h"
#include "cli/serve_tiers.h"
#include "engine/llama/file_id.h"
#include "engine/llama/llama_library.h"
#include "engine/llama/llama_model.h"
#include "server/app.h"
#include "server/chat/chat.h"
#include "server/config.h"
#include "server/front_door.h"
#include "server/http/server.h"
#include "server/log_writer.h"
#include "server/schedule/scheduler.h"
#include "stemma/clock.h"
#include "stemma/log.h"
#include "stemma/tier/host_tier.h"

namespace stemma::cli {

namespace {

using server::Config;

constexpr const char* kServeHelp =
    R"(usage: stemma serve --model FILE [SETTINGS]

Serves a GGUF model over HTTP, for clients of OpenAI, Anthropic, Ollama and llama-server. It never
recomputes a prefix that it still holds: what one conversation has computed serves every other one
that begins in the same way, even after its sequence was reused for something else.

  stemma serve --model model.gguf
  curl localhost:8080/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}]}'

Each setting can also be an environment variable (STEMMA_SAVED_BYTES=2GiB) or a line in a TOML file
(saved_bytes = "2GiB") named by --config FILE or STEMMA_CONFIG. A flag overrides a variable, and a
variable overrides the file. Sizes take KiB, MiB, GiB. Defaults are in parentheses.
)";

constexpr const char* kHelpEnd = R"(
When state is written to a tier (--disk-write, --redis-write, --shared-write):
  through     as soon as it is saved, usually within a second; kill -9 loses next to nothing
  back        when it leaves memory, and all of it at SIGTERM and POST /cache/save; this avoids
              writing the same state from every server, but kill -9 loses what was only in memory
  second-use  when a second request begins in the same way; prompts that never come back are not
              written to the disk

/metrics and /cache show what is reused, /slots shows the sequences. In each answer,
usage.prompt_tokens_details.cached_tokens says how much of the prompt was not computed, and `stemma`
says where that came from and why it was not more. At SIGTERM, running requests may finish
(--drain-seconds). SIGHUP changes nothing.

exit status: 0 ended on request, 1 could not start, 2 wrong settings
)";

// Writes lines with the time in front to standard error. A slow reader of the log never blocks the
// writer of a line.
class Log {
 public:
  // It also writes the library's lines: warnings always, and improvements once the server is ready.
  // Before that the server itself reports what it opened.
  Log() {
    set_log_handler(
        [](LogLevel level, std::string_view text, void* user) {
          Log& log = *static_cast<Log*>(user);
          const LogLevel least = log.ready_ ? LogLevel::info : LogLevel::warning;
          if (level < least) return;
          const char* word = level == LogLevel::error     ? "error: "
                             : level == LogLevel::warning ? "warning: "
                                                          : "";
          log.line(word + std::string(text));
        },
        this);
  }
  ~Log() { set_log_handler(nullptr, nullptr); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void line(std::string_view text) { writer_.line(text); }
  void set_ready() noexcept { ready_ = true; }

 private:
  std::atomic<bool> ready_{false};
  server::LogWriter writer_{STDERR_FILENO};
};

// Warns about settings that are probably not meant.
void warn(const Config& config, bool loopback, Log& log) {
  std::vector<std::string> names;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    names.emplace_back(*each, std::strcspn(*each, "="));
  }
  for (const std::string& sentence : server::unknown_variables(names)) {
    log.line("warning: " + sentence);
  }
  if (!loopback && config.api_key.empty()) {
    log.line(
        "warning: " + config.host +
        " can be reached by other machines, and no key is asked for: whoever reaches it can use "
        "the model and empty the cache. Set --api-key-file, or listen on 127.0.0.1.");
  }
}

// Waits until SIGINT or SIGTERM asks the process to end. SIGHUP does not cut off any client.
int wait_for_end(const sigset_t& signals, Log& log) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return signal;
    log.line("SIGHUP: nothing is loaded again while it runs; to change settings, start it again");
  }
}

std::optional<std::string> contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  // A folder can be opened like a file, and reads as empty.
  if (std::error_code error; !in || std::filesystem::is_directory(path, error)) return {};
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

int serving_failed(const std::string& why) {
  std::fprintf(stderr, "stemma serve: %s\n", why.c_str());
  return 1;
}

int refuse(const std::string& why) {
  serving_failed(why);
  return 2;
}

// Returns a blocked signal that is pending.
int waiting_signal() {
  sigset_t waiting;
  sigemptyset(&waiting);
  sigpending(&waiting);
  return sigismember(&waiting, SIGTERM) == 1  ? SIGTERM
         : sigismember(&waiting, SIGINT) == 1 ? SIGINT
                                              : 0;
}

// Shows on a terminal how far a step is.
class LoadProgress {
 public:
  // Returns false if the process was asked to end.
  bool tell(const char* what, double part) {
    const int percent = static_cast<int>(part * 100);
    if (what != last_what_ || percent != last_percent_) {
      last_what_ = what;
      last_percent_ = percent;
      // A supervisor that waits for READY=1 waits longer while there is progress.
      notify_supervisor("EXTEND_TIMEOUT_USEC=600000000");
      if (isatty(2) != 0) {
        std::fprintf(stderr, "\r%s the model: %3d %%%s", what, percent, percent == 100 ? "\n" : "");
      }
    }
    return waiting_signal() == 0;
  }

 private:
  std::string last_what_;
  int last_percent_ = -1;
};

// Returns "" or an error message about the settings.
std::string fill(const Config& config, engine::LlamaOptions& options) {
  options.path = config.model;
  options.model_id = config.model_id;
  options.id_memory = engine::usual_file_memory();
  for (const std::string& adapter : config.adapters) {
    engine::LlamaAdapter each{.path = adapter};
    if (const size_t colon = adapter.rfind(':'); colon != std::string::npos) {
      char* end = nullptr;
      const float scale = std::strtof(adapter.c_str() + colon + 1, &end);
      if (end != adapter.c_str() + colon + 1 && *end == '\0') {
        if (!std::isfinite(scale)) return "--adapter " + adapter + ": its scale is no number";
        each.path = adapter.substr(0, colon);
        each.scale = scale;
      }
    }
    options.adapters.push_back(each);
  }
  options.sequences = static_cast<uint32_t>(config.sequences);
  options.context_tokens = static_cast<uint32_t>(config.context);
  options.batch_tokens = static_cast<uint32_t>(config.batch);
  options.threads = static_cast<uint32_t>(config.threads);
  options.k_type = config.k_type;
  options.v_type = config.v_type;
  options.flash_attention = config.flash_attention;
  options.unified = !config.split_context;
  options.embeddings = config.embeddings;
  if (config.gpu_layers) options.gpu_layers = static_cast<int32_t>(*config.gpu_layers);
  return "";
}

server::HttpOptions listening_of(const Config& config, Log& log) {
  server::HttpOptions listening;
  listening.host = config.host;
  listening.port = static_cast<uint16_t>(config.port);
  listening.header_bytes = config.header_bytes;
  listening.body_bytes = config.body_bytes;
  listening.connections = config.connections;
  listening.body_time = std::chrono::seconds(config.read_seconds);
  listening.write_time = std::chrono::seconds(config.write_seconds);
  listening.cors_origin = config.cors_origin;
  listening.log = [&log](std::string_view line) { log.line(line); };
  return listening;
}

struct StopAtEnd {
  server::HttpServer& server;
  ~StopAtEnd() { server.stop(); }
};

Reuse reuse_of(const std::string& name) {
  if (name == "live") return Reuse::live;
  if (name == "saved") return Reuse::saved;
  if (name == "disabled") return Reuse::disabled;
  return Reuse::everything;
}

// Reads the settings and the files that they name. Returns the exit status if the process is to
// end now.
std::optional<int> read_settings(std::span<const std::string_view> arguments, Config& config,
                                 std::string& chat_template) {
  const server::ConfigAnswer read = server::read_config(
      arguments, [](const char* name) { return std::getenv(name); }, contents_of);
  if (read.help) {
    std::printf("%s%s%s", kServeHelp, server::config_help().c_str(), kHelpEnd);
    return 0;
  }
  if (!read.error.empty()) return refuse(read.error);
  config = read.config;
  if (config.model.empty()) {
    return refuse("which model? --model FILE (stemma make-model makes a small one)");
  }
  if (!config.api_key_file.empty()) {
    const auto text = contents_of(config.api_key_file);
    if (!text) return serving_failed("cannot read " + config.api_key_file);
    config.api_key = text->substr(0, text->find_first_of("\r\n"));
    if (config.api_key.empty())
      return serving_failed(config.api_key_file + " has no key in its first line");
  }
  if (!config.chat_template.empty()) {
    const auto text = contents_of(config.chat_template);
    if (!text || text->empty()) return serving_failed("cannot read " + config.chat_template);
    chat_template = *text;
  }
  return {};
}

// Blocks the signals that this thread will wait for; threads that start later inherit the mask.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// From now on a second signal ends the process at once.
void unblock_signals(sigset_t signals) {
  sigdelset(&signals, SIGHUP);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

// Allows as many connections as the system does.
void raise_file_limit() {
  if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

const char* name_of(int signal) { return signal == SIGTERM ? "SIGTERM" : "SIGINT"; }

std::string url_of(const Config& config, uint16_t port) {
  const bool ipv6 = config.host.find(':') != std::string::npos;
  return "http://" + (ipv6 ? "[" + config.host + "]" : config.host) + ":" + std::to_string(port);
}

// Returns null if the model cannot be loaded; `why` is empty if the process was asked to end.
std::unique_ptr<engine::LlamaModel> load_model(engine::LlamaOptions& options, std::string& why) {
  // A library without code for this GPU would end the process at the first forward pass.
  if (options.gpu_layers != 0) {
    if (why = check_gpus(); !why.empty()) return nullptr;
  }
  LoadProgress progress;
  options.progress = [&](const char* what, double part) { return progress.tell(what, part); };
  std::unique_ptr<engine::LlamaModel> model = engine::LlamaModel::load(options, why);
  options.progress = nullptr;
  if (model == nullptr && waiting_signal() != 0) why.clear();
  return model;
}

// What is reused depends on how fast this machine computes and copies. A test that says what is
// reused sets this variable: then nothing is measured, the cache plans by the costs that it assumes
// at the start, and what a tier has is always worth loading. Null: costs are measured.
const Clock* clock_of_cache() {
  static const ManualClock kStill;
  return std::getenv("STEMMA_TEST_STILL_CLOCK") != nullptr ? &kStill : nullptr;
}

server::SchedulerOptions scheduling_of(const Config& config, const EngineTraits& traits,
                                       tier::SequenceTiers* tiers) {
  server::SchedulerOptions options;
  options.queue = static_cast<uint32_t>(config.queue);
  options.reuse = config.reuse != "disabled";
  options.cache.reuse = reuse_of(config.reuse);
  options.cache.saved_bytes = config.saved_bytes;
  options.cache.logits_bytes = config.logits_bytes;
  options.cache.checkpoint_share = config.checkpoint_share;
  options.cache.policy = config.policy;
  options.cache.segment_tokens = static_cast<uint32_t>(config.segment_tokens);
  options.cache.interval_tokens = static_cast<uint32_t>(config.interval_tokens);
  options.cache.clock = clock_of_cache();
  // Pinned buffers for transfers between a GPU and memory.
  if (traits.range_tokens != 0) options.cache.pinned = cuda_memory_hook();
  options.tiers = tiers;
  options.cache.listener = tiers;
  return options;
}

server::AppOptions routes_of(const Config& config, Log& log) {
  server::AppOptions routes;
  routes.alias = config.alias;
  routes.api_key = config.api_key;
  routes.keep_alive = std::chrono::seconds(config.keep_alive_seconds);
  routes.site = {.cors_origin = config.cors_origin, .host = config.host};
  routes.any_model = config.any_model;
  // More than a tier may be silent: so one that stalls is noticed here, and the prompt is not looked
  // for there too.
  routes.transcript_tier_ns =
      std::max(routes.transcript_tier_ns, 2 * config.tier_wait_ms * uint64_t{1'000'000});
  routes.vllm_metrics = config.vllm_metrics;
  routes.llama_metrics = config.llama_metrics;
  if (!config.quiet) routes.log = [&log](std::string_view line) { log.line(line); };
  return routes;
}

// Numbers the scope of the model, so that tiers keep the entries of different models apart.
uint32_t fingerprint_of(const engine::LlamaModel& model) {
  uint32_t fingerprint = 0;
  if (const Result<Scope> scope = Scope::make(model.info().scope)) {
    std::memcpy(&fingerprint, scope->digest().data(), sizeof fingerprint);
  }
  return fingerprint;
}

void report_ready(const Config& config, engine::LlamaModel& model, const std::string& id,
                  const std::string& url, Log& log) {
  const EngineTraits traits = model.sequences().traits();
  log.set_ready();
  log.line("ready model=" + id + " memory=" + engine::to_string(model.memory_kind()) +
           " context=" + std::to_string(traits.context_tokens) +
           " sequences=" + std::to_string(traits.sequences) +
           " saved_bytes=" + std::to_string(config.saved_bytes) + " policy=" + config.policy +
           " device=\"" + engine::describe(model.info().placement) + "\" url=" + url);
  notify_supervisor("READY=1\nSTATUS=ready; url=" + url);
}

// Saves the latest results, and makes sure that the tiers have everything that was saved. With
// write-back that is everything in memory, which may take longer than the latest results alone.
void fill_tiers(const tier::SequenceTiers& tiers, server::Scheduler& scheduler, Log& log) {
  const uint64_t patience_ns = tiers.writes_back() ? 60'000'000'000 : 10'000'000'000;
  const server::Scheduler::Kept kept =
      scheduler.keep_everything(Clock::monotonic().now_ns() + patience_ns);
  if (tiers.writes_back()) {
    log.line("written back parts=" + std::to_string(kept.written_back.parts) +
             " bytes=" + std::to_string(kept.written_back.bytes));
  }
  if (kept.in_tiers) return;
  std::string lacking;
  for (const server::Scheduler::KeptTier& tier : kept.tiers) {
    lacking += " " + tier.name + " waiting=" + std::to_string(tier.waiting) +
               " lost=" + std::to_string(tier.lost);
  }
  log.line("the tiers did not take everything; what they lack will be computed again:" + lacking);
}

}  // namespace

int run_serve(std::span<const std::string_view> arguments) {
  Config config;
  std::string chat_template;
  if (const std::optional<int> status = read_settings(arguments, config, chat_template)) {
    return *status;
  }
  const sigset_t signals = block_signals();
  raise_file_limit();

  Log log;
  const auto write_line = [&log](std::string_view line) { log.line(line); };
  // While the model loads, an error is reported only once, at the end.
  bool loading = true;
  engine::set_llama_log([&](bool error, const std::string& line) {
    if (error && !loading) log.line("llama.cpp: " + line);
  });
  engine::LlamaOptions options;
  if (const std::string wrong = fill(config, options); !wrong.empty()) return refuse(wrong);
  // Clients get answers from now on, even if the answer is only that the model is loading.
  server::FrontDoor front_door;
  std::string why;
  server::HttpOptions listening = listening_of(config, log);
  front_door.connect(listening, write_line);
  auto http = server::HttpServer::create(
      listening,
      [&](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
        front_door.handle(std::move(request), std::move(reply));
      },
      &why);
  if (!http) return serving_failed(why);
  warn(config, (*http)->is_loopback(), log);
  if (const Result<void> started = (*http)->start(); !started)
    return serving_failed(started.error().to_string());
  const std::string url = url_of(config, (*http)->port());
  notify_supervisor("STATUS=loading the model; url=" + url);

  const std::unique_ptr<engine::LlamaModel> model = load_model(options, why);
  if (model == nullptr && why.empty()) {
    log.line(std::string("ended on ") + name_of(waiting_signal()) + " before it was ready");
    return 0;
  }
  if (model == nullptr) return serving_failed(why);
  loading = false;

  const std::unique_ptr<server::Chat> chat =
      server::Chat::create(*model, chat_template, why, {.keep_thinking = config.keep_thinking});
  if (chat == nullptr) return serving_failed(why);
  const EngineTraits traits = model->sequences().traits();
  warn_of_small_budget(config, traits, write_line);
  ServeTiers tiers;
  if (!open_tiers(config, traits, fingerprint_of(*model), write_line, tiers, why)) {
    return serving_failed(why);
  }
  const std::unique_ptr<server::Scheduler> scheduler =
      server::Scheduler::create(*model, scheduling_of(config, traits, tiers.tiers.get()), why);
  if (scheduler == nullptr) return serving_failed(why);
  server::App app(*model, *scheduler, *chat, routes_of(config, log));

  // Stop the server before the App is destroyed, so that no request reaches it any more.
  const StopAtEnd stop_first{**http};
  app.watch(http->get());
  front_door.open(app);
  report_ready(config, *model, app.model_id(), url, log);

  log.line(std::string("ending on ") + name_of(wait_for_end(signals, log)));
  notify_supervisor("STOPPING=1\nSTATUS=ending");
  app.close();
  (*http)->stop_accepting();
  unblock_signals(signals);
  const bool all = scheduler->drain(config.drain_seconds * 1'000'000'000U);
  if (tiers.stack != nullptr) fill_tiers(*tiers.tiers, *scheduler, log);
  // Requests that were cut off get an error before their connections close.
  scheduler->stop();
  app.end_streams();
  (*http)->drain(std::chrono::seconds(2));
  (*http)->stop();
  log.line(all ? "ended" : "ended; some requests were cut off");
  return 0;
}

}  // namespace stemma::cli

#else

#include <cstdio>

namespace stemma::cli {

int run_serve(std::span<const std::string_view> /*arguments*/) {
  std::fputs(
      "stemma serve: this program was built without llama.cpp or without the server's libraries.\n"
      "Run scripts/bootstrap build llama and scripts/get-llama, then build again.\n",
      stderr);
  return 1;
}

}  // namespace stemma::cli

#endif
