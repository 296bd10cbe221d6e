// The reference engine with its own memory over a tier that others have used, like another process.
// Every logit is compared with the model's without any cache.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include "engine/paged/engine.h"
#include "oracle/judge.h"
#include "stemma/tier/paged_tiers.h"
#include "tiers/borrowed_tier.h"

namespace stemma::test {

using tier::PagedTiers;
using tier::StackLevel;
using tier::StackOptions;
using tier::TierStack;

inline constexpr uint32_t kLargestBlock = 16;  // Of all models of these tests.

// Restores before it leases, and stores as it commits. So the windows and states are stored for
// every depth that a later request may return to.
class TieredEngine final : public paged::Engine {
 public:
  TieredEngine(PagedCache& cache, paged::KvArena& arena, const paged::Adapter& adapter,
               const paged::EngineOptions& options, PagedTiers& tiers)
      : Engine(cache, arena, std::span(&adapter, 1), options),
        tiers_(tiers),
        scope_(adapter.scope) {}
  // ~Engine() ends running requests, which we could no longer store, so none may be running by
  // then.
  uint64_t restored_tokens = 0;

 protected:
  Result<Lease> take_lease(const paged::Request& request, const LeaseOptions& options) override {
    STEMMA_TRY(const tier::Restored restored,
               tiers_.restore(scope_, request.text.prompt(), options));
    restored_tokens += restored.restored_tokens;
    return Engine::take_lease(request, options);
  }
  void commit(paged::Request& request) override {
    const uint32_t before = request.lease.committed();
    Engine::commit(request);
    store(request, before);
  }
  void save_checkpoint(paged::Request& request) override {
    Engine::save_checkpoint(request);
    store(request, request.lease.committed() - 1);
  }

 private:
  // Blocks that were not whole last time are passed again.
  void store(const paged::Request& request, uint32_t from) {
    tiers_.store(scope_, request.text.prompt(), request.lease, from - from % kLargestBlock).value();
  }

  PagedTiers& tiers_;
  Scope scope_;
};

inline paged::Text words(uint32_t count, uint32_t seed) {
  paged::Text text;
  for (uint32_t i = 0; i < count; ++i) text.tokens.push_back((seed * 37 + i * 11) % 251);
  return text;
}

// A model of some kind of attention, and memory for it.
struct EngineMix {
  const char* name;
  std::vector<paged::LayerGroup> groups;
  std::vector<uint32_t> block_tokens;  // Per group; 0 for recurrent ones.

  paged::ModelConfig config() const {
    paged::ModelConfig config;
    config.groups = groups;
    config.layers.clear();
    for (uint32_t i = 0; i < std::max<size_t>(2, groups.size()); ++i)
      config.layers.push_back(i % static_cast<uint32_t>(groups.size()));
    return config;
  }
  // This many blocks of 4 tokens in every group.
  std::vector<paged::GroupMemory> memory(uint32_t blocks) const {
    std::vector<paged::GroupMemory> memory;
    for (const uint32_t tokens : block_tokens) {
      memory.push_back({.block_tokens = tokens == 0 ? 16 : tokens,
                        .capacity_blocks = tokens == 0 ? blocks / 4 : blocks * 4 / tokens});
    }
    return memory;
  }
};

inline void PrintTo(const EngineMix& mix, std::ostream* out) { *out << mix.name; }

inline std::vector<EngineMix> engine_mixes() {
  const paged::LayerGroup full, recurrent{.attention = Attention::recurrent};
  const paged::LayerGroup window{.attention = Attention::window, .window_tokens = 11};
  const paged::LayerGroup sinks{
      .attention = Attention::window, .window_tokens = 6, .sink_tokens = 3};
  return {{"Full", {full}, {4}},
          {"Window", {window}, {4}},
          {"Recurrent", {recurrent}, {0}},
          {"FullWindow", {full, window}, {4, 8}},
          {"FullRecurrent", {full, recurrent}, {4, 0}},
          {"All", {sinks, full, recurrent, window}, {2, 8, 0, 4}}};
}

// Prompts with a common head.
inline std::vector<paged::Text> engine_prompts() {
  std::vector<paged::Text> all;
  for (uint32_t i = 0; i < 6; ++i) {
    all.push_back(words(40, 1));
    const paged::Text tail = words(10 + i, 2 + i);
    all.back().tokens.insert(all.back().tokens.end(), tail.tokens.begin(), tail.tokens.end());
  }
  return all;
}

// One process: an engine with its own memory and cache, over a tier that others have used.
class EngineProcess final : public paged::Listener {
 public:
  EngineProcess(const paged::Model& model, const paged::ModelConfig& config,
                std::span<const paged::GroupMemory> memory, Tier& tier)
      : arena_(make_layout(config, memory)), judge_({&model}) {
    Options options;
    options.groups = arena_.layout().groups;
    options.block_io = &arena_;
    cache_ = std::make_unique<PagedCache>(PagedCache::create(options).value());
    StackOptions stack;
    stack.query_ns = 60'000'000'000;  // A busy machine is not a late tier.
    StackLevel level;
    level.tier = std::make_unique<Borrowed>(tier);
    stack.levels.push_back(std::move(level));
    tiers_ = PagedTiers::create(
                 {.cache = cache_.get(), .io = &arena_, .groups = options.groups, .layout = 1},
                 TierStack::create(std::move(stack)).value())
                 .value();
    paged::EngineOptions engine;
    engine.listener = this;
    engine.checkpoint_tokens = 16;
    engine.chunk_tokens = 16;
    engine_ = std::make_unique<TieredEngine>(
        *cache_, arena_, paged::Adapter{&model, Scope::make({.model = "weights"}).value()}, engine,
        *tiers_);
  }
  ~EngineProcess() override {
    EXPECT_TRUE(tiers_->stack().flush(kNever));
    EXPECT_EQ(judge_.verdict(), "");
    EXPECT_GT(judge_.claims(), 0U);
  }

  void serve(std::span<const paged::Text> prompts) {
    for (const paged::Text& prompt : prompts)
      engine_->submit({.prompt = prompt, .max_new_tokens = 5, .want_logits = false}).value();
    while (engine_->step()) {
    }
    EXPECT_TRUE(tiers_->stack().flush(kNever));
    EXPECT_EQ(engine_->counts().failed, 0U);
  }
  uint64_t restored_tokens() const { return engine_->restored_tokens; }
  uint64_t computed_tokens() const { return engine_->counts().computed_tokens; }

 private:
  void on_logits(const paged::Request& request) override {
    judge_.claim(0, request.text, request.logits);
  }

  paged::KvArena arena_;
  oracle::Judge judge_;
  std::unique_ptr<PagedCache> cache_;
  std::unique_ptr<PagedTiers> tiers_;
  std::unique_ptr<TieredEngine> engine_;
};

}  // namespace stemma::test
