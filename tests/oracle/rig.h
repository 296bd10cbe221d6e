// A Rig is one reference engine over one cache, with a Judge who checks every logit it samples
// from.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/paged/engine.h"
#include "oracle/judge.h"

namespace stemma::oracle {

class Rig final : public paged::Listener {
 public:
  struct Setup {
    paged::ModelConfig model = {};
    std::vector<paged::GroupMemory> memory = {{.block_tokens = 4, .capacity_blocks = 64}};
    uint64_t logits_bytes = 1 << 20;
    paged::EngineOptions engine = {};
  };

  explicit Rig(const Setup& setup)
      : model(make_model(setup.model)),
        arena(make_layout(setup.model, setup.memory)),
        cache(PagedCache::create(options_of(setup)).value()),
        judge_({&model}),
        engine_(cache, arena, std::vector{paged::Adapter{&model, scope}}, heard(setup.engine)) {}
  ~Rig() override {
    EXPECT_EQ(judge_.verdict(), "");
    cache.check_invariants();
  }

  paged::Engine& engine() { return engine_; }
  const paged::EngineCounts& counts() const { return engine_.counts(); }

  uint64_t submit(const paged::Text& prompt, uint32_t new_tokens, uint64_t sample_seed = 0) {
    return engine_
        .submit({.prompt = prompt, .max_new_tokens = new_tokens, .sample_seed = sample_seed})
        .value();
  }
  void run() {
    while (engine_.step()) {
    }
  }
  // A whole request. Returns its text.
  paged::Text serve(const paged::Text& prompt, uint32_t new_tokens, uint64_t sample_seed = 0) {
    const uint64_t id = submit(prompt, new_tokens, sample_seed);
    run();
    return finished.at(id);
  }

  void on_logits(const paged::Request& request) override {
    judge_.claim(0, request.text, request.logits);
    sampled.push_back(request.id);
  }
  void on_finished(const paged::Request& request) override {
    finished[request.id] = request.text;
    order.push_back(request.id);
  }

  const Scope scope = Scope::make({.model = "weights"}).value();
  const paged::Model model;
  paged::KvArena arena;
  PagedCache cache;
  std::map<uint64_t, paged::Text> finished;
  std::vector<uint64_t> order;    // In which requests finished.
  std::vector<uint64_t> sampled;  // Whose tokens were sampled, in order; the test may clear it.

 private:
  Options options_of(const Setup& setup) {
    Options options;
    options.groups = arena.layout().groups;
    options.block_io = &arena;
    options.logits_bytes = setup.logits_bytes;
    return options;
  }
  paged::EngineOptions heard(paged::EngineOptions options) {
    options.listener = this;
    return options;
  }

  Judge judge_;
  paged::Engine engine_;
};

// `count` tokens that no text of another seed begins with.
inline paged::Text words(uint32_t count, uint32_t seed = 1) {
  paged::Text text;
  for (uint32_t i = 0; i < count; ++i) text.tokens.push_back((seed * 37 + i * 11) % 251);
  return text;
}

}  // namespace stemma::oracle
