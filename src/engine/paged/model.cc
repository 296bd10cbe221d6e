#include "engine/paged/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/paged/kernels.h"
#include "engine/paged/random.h"

namespace stemma::paged {
namespace {

constexpr uint32_t kPatchFloats = 8;
constexpr float kRopeBase = 10'000.0F;

Matrix random_matrix(Random& random, uint32_t inputs, uint32_t outputs) {
  Matrix matrix{inputs, outputs, std::vector<float>(size_t{inputs} * outputs)};
  const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
  for (float& value : matrix.values) value = random.real() * scale;
  return matrix;
}

std::vector<float> random_gain(Random& random, uint32_t size) {
  std::vector<float> gain(size);
  for (float& value : gain) value = 1.0F + 0.25F * random.real();
  return gain;
}

Layer random_layer(Random& random, const ModelConfig& config, Attention attention) {
  const uint32_t q = config.heads * config.head_dim;
  // A recurrent layer has a state per head, so its keys and values are not grouped.
  const uint32_t kv = attention == Attention::recurrent ? q : config.kv_heads * config.head_dim;
  Layer layer;
  layer.attention_norm = random_gain(random, config.dim);
  layer.feed_forward_norm = random_gain(random, config.dim);
  layer.query = random_matrix(random, config.dim, q);
  layer.key = random_matrix(random, config.dim, kv);
  layer.value = random_matrix(random, config.dim, kv);
  layer.output = random_matrix(random, q, config.dim);
  if (attention == Attention::recurrent) {
    layer.forget = random_matrix(random, config.dim, config.heads);
  }
  if (config.experts != 0) layer.router = random_matrix(random, config.dim, config.experts);
  for (uint32_t e = 0; e < std::max(config.experts, 1U); ++e) {
    layer.experts.push_back({random_matrix(random, config.dim, config.hidden),
                             random_matrix(random, config.dim, config.hidden),
                             random_matrix(random, config.hidden, config.dim)});
  }
  return layer;
}

}  // namespace

Model make_model(const ModelConfig& config) {
  Random random(config.seed);
  Model model;
  model.config = config;
  model.embedding = random_matrix(random, config.vocab_tokens, config.dim);
  for (float& value : model.embedding.values) {
    value *= std::sqrt(static_cast<float>(config.vocab_tokens) / 3.0F);
  }
  model.media_encoder = random_matrix(random, kPatchFloats, config.dim);
  for (const uint32_t group : config.layers) {
    model.layers.push_back(random_layer(random, config, config.groups[group].attention));
  }
  model.final_norm = random_gain(random, config.dim);
  model.unembedding = random_matrix(random, config.dim, config.vocab_tokens);
  const uint32_t pairs = config.head_dim / 2;
  for (uint32_t position = 0; position < config.max_positions; ++position) {
    for (uint32_t i = 0; i < pairs; ++i) {
      const float exponent = static_cast<float>(i) / static_cast<float>(pairs);
      const float angle = static_cast<float>(position) * std::pow(kRopeBase, -exponent);
      model.rope_cos.push_back(std::cos(angle));
      model.rope_sin.push_back(std::sin(angle));
    }
  }
  return model;
}

void embed(const Model& model, const Text& text, uint32_t position, float* out) {
  const uint32_t dim = model.config.dim;
  bool is_media = false;
  for (const MediaItem& item : text.media) {
    if (position < item.offset || position - item.offset >= item.length) continue;
    std::array<uint64_t, 2> content;
    std::memcpy(content.data(), item.digest.data(), sizeof content);
    uint64_t picture = mix(mix(content[0], content[1]), static_cast<uint64_t>(item.kind));
    picture = mix(picture, (uint64_t{item.length} << 1) | (item.causal ? 1 : 0));
    std::array<float, kPatchFloats> patch;
    for (uint32_t i = 0; i < kPatchFloats; ++i) {
      patch[i] = to_float(mix(picture, (uint64_t{position - item.offset} << 8) | i));
    }
    std::vector<float> encoded(dim);
    multiply(model.media_encoder, patch.data(), encoded.data());
    if (!is_media) std::fill(out, out + dim, 0.0F);
    is_media = true;
    for (uint32_t i = 0; i < dim; ++i) out[i] += encoded[i];
  }
  if (!is_media) {
    const float* row = model.embedding.row(text.tokens[position] % model.config.vocab_tokens);
    std::copy(row, row + dim, out);
  }
}

}  // namespace stemma::paged
