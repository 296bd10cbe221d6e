#include "oracle/models.h"

#include <algorithm>
#include <string>

namespace stemma::oracle {

using paged::Random;

paged::ModelConfig random_model(Random& random, int kind) {
  paged::ModelConfig config;
  config.dim = 24;
  config.heads = 4;
  config.kv_heads = one_of(random, {1U, 2U, 4U});
  config.head_dim = 6;
  config.hidden = 32;
  config.max_positions = 128;
  if (random.chance(30)) {
    config.experts = random.between(2, 4);
    config.experts_used = random.between(1, 2);
  }
  const auto window = [&](bool sinks) {
    return paged::LayerGroup{.attention = Attention::window,
                             .window_tokens = one_of(random, {1U, 4U, 7U, 16U, 24U}),
                             .sink_tokens = sinks ? random.between(1, 6) : 0};
  };
  const paged::LayerGroup full, recurrent{.attention = Attention::recurrent};
  switch (kind) {
    case kFull: config.groups = {full}; break;
    case kWindow: config.groups = {window(false)}; break;
    case kSinks: config.groups = {window(true)}; break;
    case kRecurrent: config.groups = {recurrent}; break;
    case kFullWindow: config.groups = {full, window(random.chance(50))}; break;
    case kFullRecurrent: config.groups = {full, recurrent}; break;
    default: config.groups = {full, window(random.chance(50)), recurrent}; break;
  }
  const auto groups = static_cast<uint32_t>(config.groups.size());
  config.layers.clear();
  for (uint32_t g = 0; g < groups; ++g) config.layers.push_back(g);
  for (uint32_t i = std::max(3U, groups) - groups; i > 0; --i) {
    config.layers.push_back(random.below(groups));
  }
  for (size_t i = config.layers.size(); i > 1; --i) {
    std::swap(config.layers[i - 1], config.layers[random.below(static_cast<uint32_t>(i))]);
  }
  config.seed = random.next();
  return config;
}

std::vector<paged::GroupMemory> random_memory(Random& random, const paged::ModelConfig& config,
                                              uint32_t longest_tokens) {
  std::vector<paged::GroupMemory> memory;
  const uint32_t tokens =
      longest_tokens * (random.chance(50) ? random.between(11, 20) : random.between(20, 50)) / 10;
  for (const paged::LayerGroup& group : config.groups) {
    if (group.attention == Attention::recurrent) {
      memory.push_back({.capacity_blocks = random.between(6, 40)});
      continue;
    }
    const uint32_t block_tokens = one_of(random, {1U, 2U, 4U, 4U, 8U, 16U});
    memory.push_back({block_tokens, tokens / block_tokens + 2});
  }
  return memory;
}

Models::Models(Random& random, int kind) {
  paged::ModelConfig config = random_model(random, kind);
  for (uint32_t i = random.chance(50) ? 1 : 2; i > 0; --i) {
    config.seed = random.next();
    models.push_back(std::make_unique<paged::Model>(make_model(config)));
    const std::string name = "weights " + std::to_string(models.size());
    adapters.push_back({models.back().get(), Scope::make({.model = name}).value()});
  }
}

std::vector<const paged::Model*> Models::pointers() const {
  std::vector<const paged::Model*> out;
  for (const auto& model : models) out.push_back(model.get());
  return out;
}

}  // namespace stemma::oracle
