// A Model is a small transformer with random weights: large enough that every byte of KV matters to
// every logit after it, small enough that a request takes a millisecond.
//
// Its layers belong to layer groups, as PagedCache knows them: layers of one group share block
// tables. Two models of one shape and different seeds stand for two adapters (or two weights).
// Threading: immutable after make_model().
#pragma once

#include <cstdint>
#include <vector>

#include "engine/paged/text.h"
#include "stemma/options.h"

namespace stemma::paged {

struct LayerGroup {
  Attention attention = Attention::full;
  uint32_t window_tokens = 0;  // Window groups: a position sees itself and this many before it.
  uint32_t sink_tokens = 0;    // Window groups: a position also sees this many at the start.
};

struct ModelConfig {
  uint32_t vocab_tokens = 256;
  uint32_t dim = 32;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;  // Divides heads: grouped-query attention.
  uint32_t head_dim = 8;  // Even, for RoPE.
  uint32_t hidden = 48;
  uint32_t experts = 0;  // 0: one dense feed-forward net a layer.
  uint32_t experts_used = 2;
  uint32_t max_positions = 512;
  std::vector<LayerGroup> groups = {{}};
  std::vector<uint32_t> layers = {0, 0};  // The group of each layer, first layer first.
  uint64_t seed = 1;

  uint32_t layer_count() const noexcept { return static_cast<uint32_t>(layers.size()); }
  Attention attention(uint32_t layer) const noexcept { return groups[layers[layer]].attention; }
  // Floats that one position leaves in one layer's KV: keys, then values.
  uint32_t row_floats() const noexcept { return 2 * kv_heads * head_dim; }
  // Floats of one recurrent layer's state.
  uint32_t state_floats() const noexcept { return heads * head_dim * head_dim; }
};

// One row per input: out[j] is the sum over i, in order, of in[i] * row(i)[j].
struct Matrix {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  std::vector<float> values = {};
  const float* row(uint32_t input) const noexcept { return &values[size_t{input} * outputs]; }
};

struct FeedForward {
  Matrix gate, up, down;
};

struct Layer {
  std::vector<float> attention_norm, feed_forward_norm;
  Matrix query, key, value, output;
  Matrix forget;                     // Recurrent layers: how much of the state each head keeps.
  Matrix router;                     // Mixture of experts.
  std::vector<FeedForward> experts;  // One, or ModelConfig::experts.
};

struct Model {
  ModelConfig config;
  Matrix embedding;  // A row per token.
  Matrix media_encoder;
  std::vector<Layer> layers;
  std::vector<float> final_norm;
  Matrix unembedding;
  std::vector<float> rope_cos, rope_sin;  // [position][head_dim / 2]
};

Model make_model(const ModelConfig& config);

// The first layer's input at a position: the token's row, or what the media encoder makes of the
// items that stand there. (The toy's pixels are drawn from the digest; a real encoder sees the
// picture, and the digest is taken from what it sees.)
void embed(const Model& model, const Text& text, uint32_t position, float* out);

}  // namespace stemma::paged
