#include "engine/paged/plain.h"

#include "engine/paged/kernels.h"

namespace stemma::paged {

PlainLogits evaluate_plain(const Model& model, const Text& text) {
  const ModelConfig& config = model.config;
  const uint32_t length = text.size();
  const size_t width = size_t{config.heads} * config.head_dim;
  std::vector<float> hidden(size_t{length} * config.dim);
  for (uint32_t p = 0; p < length; ++p) embed(model, text, p, &hidden[size_t{p} * config.dim]);

  std::vector<float> queries(length * width), attended(width);
  std::vector<float> kv(size_t{length} * config.row_floats());
  std::vector<uint32_t> seen;
  std::vector<const float*> rows;
  for (uint32_t layer = 0; layer < config.layer_count(); ++layer) {
    const LayerGroup& group = config.groups[config.layers[layer]];
    if (group.attention == Attention::recurrent) {
      std::vector<float> state(config.state_floats());
      for (uint32_t p = 0; p < length; ++p) {
        float* at = &hidden[size_t{p} * config.dim];
        recur(model, layer, at, state, attended.data());
        finish_layer(model, layer, attended.data(), at);
      }
      continue;
    }
    for (uint32_t p = 0; p < length; ++p) {
      query_and_row(model, layer, p, &hidden[size_t{p} * config.dim], &queries[p * width],
                    &kv[size_t{p} * config.row_floats()]);
    }
    for (uint32_t p = 0; p < length; ++p) {
      visible(group, text, p, seen);
      rows.clear();
      for (const uint32_t t : seen) rows.push_back(&kv[size_t{t} * config.row_floats()]);
      attend(config, &queries[p * width], rows, attended.data());
      finish_layer(model, layer, attended.data(), &hidden[size_t{p} * config.dim]);
    }
  }

  PlainLogits out{config.vocab_tokens, {}};
  out.values.resize(size_t{length} * config.vocab_tokens);
  for (uint32_t p = 0; p < length; ++p) {
    logits(model, &hidden[size_t{p} * config.dim], &out.values[size_t{p} * config.vocab_tokens]);
  }
  return out;
}

}  // namespace stemma::paged
