#include "engine/paged/kernels.h"

#include <algorithm>
#include <cmath>

#include "engine/paged/random.h"

// Arithmetic on weights and on a position's own vectors: no other thread sees them, and the thread
// sanitizer would spend all its time there. It still watches the last writes to rows (rotate) and
// their readers (attend).
#define STEMMA_UNWATCHED __attribute__((no_sanitize("thread")))

namespace stemma::paged {
namespace {

void rotate(const Model& model, uint32_t position, uint32_t heads, float* vector) {
  const uint32_t pairs = model.config.head_dim / 2;
  const float* cos = &model.rope_cos[size_t{position} * pairs];
  const float* sin = &model.rope_sin[size_t{position} * pairs];
  for (uint32_t h = 0; h < heads; ++h, vector += 2 * size_t{pairs}) {
    for (uint32_t i = 0; i < pairs; ++i) {
      const float a = vector[i];
      const float b = vector[i + pairs];
      vector[i] = a * cos[i] - b * sin[i];
      vector[i + pairs] = a * sin[i] + b * cos[i];
    }
  }
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

STEMMA_UNWATCHED void feed_forward(const FeedForward& net, const float* in,
                                   std::vector<float>& gate, std::vector<float>& up, float* out) {
  gate.resize(net.gate.outputs);
  up.resize(net.up.outputs);
  multiply(net.gate, in, gate.data());
  multiply(net.up, in, up.data());
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
  multiply(net.down, gate.data(), out);
}

// The experts with the largest scores, lower number first on ties; ascending by number.
std::vector<uint32_t> choose_experts(const std::vector<float>& scores, uint32_t count) {
  std::vector<uint32_t> order(scores.size());
  for (uint32_t e = 0; e < order.size(); ++e) order[e] = e;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  order.resize(std::min<size_t>(count, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

STEMMA_UNWATCHED void multiply(const Matrix& matrix, const float* in, float* out) {
  const uint32_t outputs = matrix.outputs;
  std::fill(out, out + outputs, 0.0F);
  for (uint32_t i = 0; i < matrix.inputs; ++i) {
    const float x = in[i];
    const float* row = matrix.row(i);
    for (uint32_t j = 0; j < outputs; ++j) out[j] += x * row[j];
  }
}

STEMMA_UNWATCHED void rms_norm(std::span<const float> gain, const float* in, float* out) {
  float sum = 0.0F;
  for (size_t i = 0; i < gain.size(); ++i) sum += in[i] * in[i];
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(gain.size()) + 1e-5F);
  for (size_t i = 0; i < gain.size(); ++i) out[i] = in[i] * scale * gain[i];
}

void query_and_row(const Model& model, uint32_t layer, uint32_t position, const float* hidden,
                   float* query, float* row) {
  const ModelConfig& config = model.config;
  const Layer& weights = model.layers[layer];
  std::vector<float> normal(config.dim);
  rms_norm(weights.attention_norm, hidden, normal.data());
  multiply(weights.query, normal.data(), query);
  multiply(weights.key, normal.data(), row);
  multiply(weights.value, normal.data(), row + weights.key.outputs);
  rotate(model, position, config.heads, query);
  rotate(model, position, config.kv_heads, row);
}

void attend(const ModelConfig& config, const float* query, std::span<const float* const> rows,
            float* out) {
  const uint32_t size = config.head_dim;
  const uint32_t kv_width = config.kv_heads * size;
  const uint32_t queries_per_head = config.heads / config.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  std::vector<float> weights(rows.size());
  for (uint32_t h = 0; h < config.heads; ++h) {
    const float* q = query + size_t{h} * size;
    const uint32_t head = h / queries_per_head * size;
    float most = -INFINITY;
    for (size_t t = 0; t < rows.size(); ++t) {
      const float* key = rows[t] + head;
      float dot = 0.0F;
      for (uint32_t i = 0; i < size; ++i) dot += q[i] * key[i];
      weights[t] = dot * scale;
      most = std::max(most, weights[t]);
    }
    float sum = 0.0F;
    float* result = out + size_t{h} * size;
    std::fill(result, result + size, 0.0F);
    for (size_t t = 0; t < rows.size(); ++t) {
      const float weight = std::exp(weights[t] - most);
      const float* value = rows[t] + kv_width + head;
      sum += weight;
      for (uint32_t i = 0; i < size; ++i) result[i] += weight * value[i];
    }
    for (uint32_t i = 0; i < size; ++i) result[i] /= sum;
  }
}

void visible(const LayerGroup& group, const Text& text, uint32_t position,
             std::vector<uint32_t>& out) {
  out.clear();
  uint32_t first = 0;
  if (group.attention == Attention::window) {
    first = position - std::min(position, group.window_tokens);
    for (uint32_t t = 0; t < std::min(first, group.sink_tokens); ++t) out.push_back(t);
  }
  for (uint32_t t = first; t < sees_until(text, position); ++t) out.push_back(t);
}

STEMMA_UNWATCHED void recur(const Model& model, uint32_t layer, const float* hidden,
                            std::span<float> state, float* out) {
  const ModelConfig& config = model.config;
  const Layer& weights = model.layers[layer];
  const uint32_t size = config.head_dim;
  const uint32_t width = config.heads * size;
  std::vector<float> normal(config.dim), query(width), key(width), value(width), keep(config.heads);
  rms_norm(weights.attention_norm, hidden, normal.data());
  multiply(weights.query, normal.data(), query.data());
  multiply(weights.key, normal.data(), key.data());
  multiply(weights.value, normal.data(), value.data());
  multiply(weights.forget, normal.data(), keep.data());
  std::fill(out, out + width, 0.0F);
  for (uint32_t h = 0; h < config.heads; ++h) {
    const float kept = sigmoid(keep[h] + 1.0F);
    const float* v = &value[size_t{h} * size];
    float* result = out + size_t{h} * size;
    for (uint32_t i = 0; i < size; ++i) {
      float* row = &state[(size_t{h} * size + i) * size];
      const float k = key[size_t{h} * size + i] * 0.5F;
      const float q = query[size_t{h} * size + i] * 0.5F;
      for (uint32_t j = 0; j < size; ++j) {
        row[j] = kept * row[j] + k * v[j];
        result[j] += q * row[j];
      }
    }
  }
}

void finish_layer(const Model& model, uint32_t layer, const float* attended, float* hidden) {
  const ModelConfig& config = model.config;
  const Layer& weights = model.layers[layer];
  std::vector<float> normal(config.dim), result(config.dim), gate, up;
  multiply(weights.output, attended, result.data());
  for (uint32_t i = 0; i < config.dim; ++i) hidden[i] += result[i];
  rms_norm(weights.feed_forward_norm, hidden, normal.data());
  if (config.experts == 0) {
    feed_forward(weights.experts[0], normal.data(), gate, up, result.data());
    for (uint32_t i = 0; i < config.dim; ++i) hidden[i] += result[i];
    return;
  }
  std::vector<float> scores(config.experts);
  multiply(weights.router, normal.data(), scores.data());
  const std::vector<uint32_t> chosen = choose_experts(scores, config.experts_used);
  float sum = 0.0F;
  for (const uint32_t e : chosen) sum += std::exp(scores[e]);
  for (const uint32_t e : chosen) {
    const float weight = std::exp(scores[e]) / sum;
    feed_forward(weights.experts[e], normal.data(), gate, up, result.data());
    for (uint32_t i = 0; i < config.dim; ++i) hidden[i] += weight * result[i];
  }
}

void logits(const Model& model, const float* hidden, float* out) {
  std::vector<float> normal(model.config.dim);
  rms_norm(model.final_norm, hidden, normal.data());
  multiply(model.unembedding, normal.data(), out);
}

STEMMA_UNWATCHED Token sample(std::span<const float> logits, uint64_t seed, uint32_t depth) {
  Token best = 0;
  float most = -INFINITY;
  for (uint32_t token = 0; token < logits.size(); ++token) {
    float value = logits[token];
    if (seed != 0) value += to_float(mix(mix(seed, depth), token)) * 2.0F;
    if (value > most) {
      most = value;
      best = token;
    }
  }
  return best;
}

}  // namespace stemma::paged
