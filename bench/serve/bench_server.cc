#include "bench/serve/bench_server.h"

#if defined(STEMMA_HAS_SERVER) && defined(STEMMA_HAS_ENGINE_LLAMA) && defined(STEMMA_HAS_GGUF)

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "engine/gguf/make_model.h"

namespace stemma::bench::serve {

uint32_t head_width(uint64_t dim) { return dim < 2048 ? 64 : 128; }

bool write_model(const std::string& kind, uint64_t dim, uint64_t layers, const std::string& file) {
  gguf::ModelShape shape;
  shape.architecture = kind == "window"   ? gguf::Architecture::window
                       : kind == "hybrid" ? gguf::Architecture::hybrid
                                          : gguf::Architecture::llama;
  shape.dim = static_cast<uint32_t>(dim);
  shape.layers = static_cast<uint32_t>(layers);
  shape.heads = std::max(shape.dim / head_width(dim), 1U);
  shape.kv_heads = shape.heads % 4 == 0 ? shape.heads / 4 : 1;
  shape.window = 128;
  shape.type = gguf::TensorType::f16;
  const auto written = gguf::write_model(shape, file);
  if (!written) std::fprintf(stderr, "stemma bench: %s\n", written.error().to_string().c_str());
  return written.has_value();
}

Server::Server(engine::LanguageModel& model, const server::SchedulerOptions& options) {
  std::string why;
  chat = server::Chat::create(model, "", why);
  scheduler = server::Scheduler::create(model, options, why);
  if (chat == nullptr || scheduler == nullptr) {
    std::fprintf(stderr, "stemma bench: %s\n", why.c_str());
    std::exit(1);
  }
  app = std::make_unique<server::App>(model, *scheduler, *chat, server::AppOptions{});
  auto made = server::HttpServer::create(
      {}, [this](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
        app->handle(std::move(request), std::move(reply));
      });
  if (!made || !(*made)->start()) {
    std::fprintf(stderr, "stemma bench: cannot listen\n");
    std::exit(1);
  }
  http = *std::move(made);
}

Server::~Server() {
  http->stop();
  scheduler->stop();
}

void Server::settle() const {
  for (int wait = 0; wait < 100 && scheduler->cache().pending() != 0; ++wait) usleep(1000);
}

uint64_t Answer::number(std::string_view name) const {
  const size_t at = stream.rfind(std::string("\"") + std::string(name) + "\":");
  if (at == std::string::npos) return 0;
  return std::strtoull(stream.c_str() + at + name.size() + 3, nullptr, 10);
}

Answer ask(test::HttpClient& client, const std::string& body) {
  using Time = std::chrono::steady_clock;
  Answer answer;
  const Time::time_point begin = Time::now();
  client.send(test::request_text("POST", "/v1/chat/completions", body));
  const test::HttpAnswer head = client.read_head();
  while (auto piece = client.read_piece()) {
    if (answer.first_token_ms == 0) {
      answer.first_token_ms =
          std::chrono::duration<double, std::milli>(Time::now() - begin).count();
    }
    answer.stream += *piece;
  }
  if (head.status != 200) {
    std::fprintf(stderr, "stemma bench: status %d\n%s\n", head.status, answer.stream.c_str());
    std::exit(1);
  }
  return answer;
}

}  // namespace stemma::bench::serve

#endif
