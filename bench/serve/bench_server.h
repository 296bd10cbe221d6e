// Shared by the benchmarks of the server: a model, a server in this process, a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/app.h"
#include "support/http_client.h"

namespace stemma::bench::serve {

// The width of a model's attention heads, as real models have it: with other widths llama.cpp
// computes attention in other ways, which are up to 25 times slower for short batches.
uint32_t head_width(uint64_t dim);
// A generated model, `full`, `window` or `hybrid`. Returns false after printing the reason.
bool write_model(const std::string& kind, uint64_t dim, uint64_t layers, const std::string& file);

// A server of one model inside this process. Ends the process if it cannot start.
struct Server {
  Server(engine::LanguageModel& model, const server::SchedulerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Saves the captures that a request left waiting.
  void settle() const;

  std::unique_ptr<server::Chat> chat;
  std::unique_ptr<server::Scheduler> scheduler;
  std::unique_ptr<server::App> app;
  std::unique_ptr<server::HttpServer> http;
};

struct Answer {
  // The last number of this name in the stream, or 0.
  uint64_t number(std::string_view name) const;

  std::string stream;
  double first_token_ms = 0;
};

// A streamed chat completion. Ends the process if it fails.
Answer ask(test::HttpClient& client, const std::string& body);

}  // namespace stemma::bench::serve
