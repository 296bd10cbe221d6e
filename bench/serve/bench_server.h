// What the benchmarks of the server share: a model, a server in this process, a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/app.h"
#include "support/http_client.h"

namespace stemma::bench::serve {

// The width of a model's attention heads, as real models have it: with other widths llama.cpp computes attention
// in other ways, which are up to 25 times slower for short batches.
uint32_t head_width(uint64_t dim);
// A generated model, `full`, `window` or `hybrid`. False: it was said why.
bool write_model(const std::string& kind, uint64_t dim, uint64_t layers, const std::string& file);

// A server of one model, without a process of its own. Ends the process where it cannot be had.
struct Server {
  Server(engine::LanguageModel& model, const server::SchedulerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // What a request left to be saved is saved.
  void settle() const;

  std::unique_ptr<server::Chat> chat;
  std::unique_ptr<server::Scheduler> scheduler;
  std::unique_ptr<server::App> app;
  std::unique_ptr<server::HttpServer> http;
};

struct Answer {
  // The last number of this name in the stream; 0: none.
  uint64_t number(std::string_view name) const;

  std::string stream;
  double first_token_ms = 0;
};

// A streamed chat completion. Ends the process where it fails.
Answer ask(test::HttpClient& client, const std::string& body);

}  // namespace stemma::bench::serve
