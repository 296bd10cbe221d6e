// `stemma serve`: a model behind HTTP, until it is told to end.
#include "cli/serve.h"

#if defined(STEMMA_HAS_SERVER) && defined(STEMMA_HAS_ENGINE_LLAMA)

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
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
#include "stemma/host_tier.h"
#include "stemma/log.h"

namespace stemma::cli {

namespace {

using server::Config;

constexpr const char* kHelp =
    R"(usage: stemma serve --model FILE [SETTINGS]

Serves a GGUF model over HTTP, as OpenAI's clients and llama-server's expect, and computes no prefix twice:
what one conversation has computed serves every other one that begins alike, also when its sequence has
long been needed for something else.

  stemma serve --model model.gguf
  curl localhost:8080/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}]}'

Every setting can also be a variable (STEMMA_SAVED_BYTES=2GiB) or a line of a TOML file named with
--config FILE or STEMMA_CONFIG (saved_bytes = "2GiB"). Flags count before variables, those before the file.
Sizes take KiB, MiB, GiB.
)";

constexpr const char* kHelpEnd = R"(
When a tier is written (--disk-write, --redis-write, --shared-write):
  through     as soon as something is saved, usually within a second: kill -9 loses next to nothing
  back        when it has to leave saved-bytes, and all of it at SIGTERM and POST /cache/save: what memory
              still has is not written again and again by every server, but kill -9 loses it
  second-use  when another request begins like it: spares a disk the prompts that never come back

Look at /metrics and /cache to see what is reused, at /slots for the sequences. Every answer says in
usage.prompt_tokens_details.cached_tokens how much of its prompt was not computed, and in `stemma` how it came
to be there and why it was not more. SIGTERM lets requests under way end (--drain-seconds). SIGHUP changes nothing.

exit status: 0 ended on request, 1 could not start, 2 wrong settings
)";

// Lines to standard error, with the time in front. Nobody who writes one waits for whoever reads them.
class Log {
 public:
  // The library's own lines are said here, too: warnings always, and once the server is ready also what changed for
  // the better. Before that the server itself says what it opened.
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

// What is probably not meant as it is set.
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

// Waits until the process is asked to end: SIGINT or SIGTERM. SIGHUP is not a reason to cut anybody off.
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
  // A folder can be opened and is empty.
  if (std::error_code error; !in || std::filesystem::is_directory(path, error)) return {};
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

int fail(const std::string& why) {
  std::fprintf(stderr, "stemma serve: %s\n", why.c_str());
  return 1;
}

// A signal that is blocked, and waits.
int waiting_signal() {
  sigset_t waiting;
  sigemptyset(&waiting);
  sigpending(&waiting);
  return sigismember(&waiting, SIGTERM) == 1  ? SIGTERM
         : sigismember(&waiting, SIGINT) == 1 ? SIGINT
                                              : 0;
}

// What is being done, on a terminal as it goes, elsewhere at its end.
class Progress {
 public:
  // false: somebody wants it to end.
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

// "" or what is wrong with the settings.
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

}  // namespace

int run_serve(std::span<const std::string_view> arguments) {
  const server::ConfigAnswer read = server::read_config(
      arguments, [](const char* name) { return std::getenv(name); }, contents_of);
  if (read.help) {
    std::printf("%s%s%s", kHelp, server::config_help().c_str(), kHelpEnd);
    return 0;
  }
  if (!read.error.empty()) {
    std::fprintf(stderr, "stemma serve: %s\n", read.error.c_str());
    return 2;
  }
  Config config = read.config;
  if (config.model.empty()) {
    std::fprintf(stderr,
                 "stemma serve: which model? --model FILE (stemma make-model makes a small one)\n");
    return 2;
  }
  if (!config.api_key_file.empty()) {
    const auto text = contents_of(config.api_key_file);
    if (!text) return fail("cannot read " + config.api_key_file);
    config.api_key = text->substr(0, text->find_first_of("\r\n"));
    if (config.api_key.empty()) return fail(config.api_key_file + " has no key in its first line");
  }
  std::string chat_template;
  if (!config.chat_template.empty()) {
    const auto text = contents_of(config.chat_template);
    if (!text || text->empty()) return fail("cannot read " + config.chat_template);
    chat_template = *text;
  }

  // Signals are waited for on this thread; others, made later, inherit that they are blocked.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // As many connections as the system allows.
  if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }

  Log log;
  // While it loads, what goes wrong is told once, in the end.
  bool loading = true;
  engine::set_llama_log([&](bool error, const std::string& line) {
    if (error && !loading) log.line("llama.cpp: " + line);
  });
  engine::LlamaOptions options;
  if (const std::string why = fill(config, options); !why.empty()) {
    std::fprintf(stderr, "stemma serve: %s\n", why.c_str());
    return 2;
  }
  // Clients are answered from now on, if only that the model is loading.
  server::FrontDoor front_door;
  std::string why;
  server::HttpOptions listening = listening_of(config, log);
  front_door.connect(listening);
  auto http = server::HttpServer::create(
      listening,
      [&](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
        front_door.handle(std::move(request), std::move(reply));
      },
      &why);
  if (!http) return fail(why);
  warn(config, (*http)->is_loopback(), log);
  if (const Result<void> started = (*http)->start(); !started)
    return fail(started.error().to_string());
  const std::string url =
      "http://" +
      (config.host.find(':') == std::string::npos ? config.host : "[" + config.host + "]") + ":" +
      std::to_string((*http)->port());
  notify_supervisor("STATUS=loading the model; url=" + url);

  // A library without code for this GPU would end the process at the first forward pass.
  if (options.gpu_layers != 0) {
    if (why = check_gpus(); !why.empty()) return fail(why);
  }
  Progress progress;
  options.progress = [&](const char* what, double part) { return progress.tell(what, part); };
  const std::unique_ptr<engine::LlamaModel> model = engine::LlamaModel::load(options, why);
  if (model == nullptr && waiting_signal() != 0) {
    log.line(std::string("ended on ") + (waiting_signal() == SIGTERM ? "SIGTERM" : "SIGINT") +
             " before it was ready");
    return 0;
  }
  if (model == nullptr) return fail(why);
  loading = false;

  const std::unique_ptr<server::Chat> chat = server::Chat::create(*model, chat_template, why);
  if (chat == nullptr) return fail(why);

  server::SchedulerOptions scheduling;
  scheduling.queue = static_cast<uint32_t>(config.queue);
  scheduling.reuse = config.reuse != "disabled";
  scheduling.cache.reuse = reuse_of(config.reuse);
  scheduling.cache.saved_bytes = config.saved_bytes;
  scheduling.cache.logits_bytes = config.logits_bytes;
  scheduling.cache.checkpoint_share = config.checkpoint_share;
  scheduling.cache.policy = config.policy;
  scheduling.cache.segment_tokens = static_cast<uint32_t>(config.segment_tokens);
  scheduling.cache.interval_tokens = static_cast<uint32_t>(config.interval_tokens);
  // Buffers for what moves between a GPU and memory.
  if (model->sequences().traits().range_tokens != 0) scheduling.cache.pinned = cuda_memory_hook();
  warn_of_small_budget(config, model->sequences().traits(),
                       [&](std::string_view line) { log.line(line); });
  ServeTiers tiers;
  uint32_t fingerprint = 0;
  if (const Result<Scope> scope = Scope::make(model->info().scope)) {
    std::memcpy(&fingerprint, scope->digest().data(), sizeof fingerprint);
  }
  if (!open_tiers(
          config, model->sequences().traits(), fingerprint,
          [&](std::string_view line) { log.line(line); }, tiers, why)) {
    return fail(why);
  }
  scheduling.tiers = tiers.tiers.get();
  scheduling.cache.listener = tiers.tiers.get();
  const std::unique_ptr<server::Scheduler> scheduler =
      server::Scheduler::create(*model, scheduling, why);
  if (scheduler == nullptr) return fail(why);

  server::AppOptions routes;
  routes.alias = config.alias;
  routes.api_key = config.api_key;
  routes.keep_alive = std::chrono::seconds(config.keep_alive_seconds);
  routes.site = {.cors_origin = config.cors_origin, .host = config.host};
  routes.vllm_metrics = config.vllm_metrics;
  routes.llama_metrics = config.llama_metrics;
  if (!config.quiet) routes.log = [&](std::string_view line) { log.line(line); };
  server::App app(*model, *scheduler, *chat, routes);

  // Before the App goes, nobody asks it any more.
  const StopAtEnd stop_first{**http};
  app.watch(http->get());
  front_door.open(app);

  const EngineTraits traits = model->sequences().traits();
  log.set_ready();
  log.line("ready model=" + app.model_id() + " memory=" + engine::to_string(model->memory_kind()) +
           " context=" + std::to_string(traits.context_tokens) +
           " sequences=" + std::to_string(traits.sequences) +
           " saved_bytes=" + std::to_string(config.saved_bytes) + " policy=" + config.policy +
           " device=\"" + engine::describe(model->info().placement) + "\" url=" + url);
  notify_supervisor("READY=1\nSTATUS=ready; url=" + url);

  const int signal = wait_for_end(signals, log);
  log.line(std::string("ending on ") + (signal == SIGTERM ? "SIGTERM" : "SIGINT"));
  notify_supervisor("STOPPING=1\nSTATUS=ending");
  app.close();
  (*http)->stop_accepting();
  // A second signal is not waited for.
  sigdelset(&signals, SIGHUP);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const bool all = scheduler->drain(config.drain_seconds * 1'000'000'000U);
  if (tiers.stack != nullptr) {
    // What was computed last is saved, and everything that was saved is where it will be looked for.
    // With write-back that is all that memory has, so it may take longer than what came last.
    const uint64_t patience_ns = tiers.tiers->writes_back() ? 60'000'000'000 : 10'000'000'000;
    const server::Scheduler::Kept kept =
        scheduler->keep_everything(Clock::monotonic().now_ns() + patience_ns);
    if (tiers.tiers->writes_back()) {
      log.line("written back parts=" + std::to_string(kept.written_back.parts) +
               " bytes=" + std::to_string(kept.written_back.bytes));
    }
    if (!kept.in_tiers) {
      std::string lacking;
      for (const server::Scheduler::KeptTier& tier : kept.tiers) {
        lacking += " " + tier.name + " waiting=" + std::to_string(tier.waiting) +
                   " lost=" + std::to_string(tier.lost);
      }
      log.line("the tiers did not take everything; what they lack will be computed again:" +
               lacking);
    }
  }
  // Those it cut off hear of it before their connections close.
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
