#include "engine/paged/forward.h"

#include <algorithm>

#include "engine/paged/kernels.h"

namespace stemma::paged {
namespace {

float* hidden_at(Chunk& chunk, uint32_t position) {
  return &chunk.hidden[size_t{position - chunk.begin} * chunk.model->config.dim];
}

// The row of a position according to the chunk's block table; null if it has no block.
float* find_row(KvArena& arena, const Chunk& chunk, KvLayout::Place place, uint32_t position) {
  const uint32_t block_tokens = arena.layout().groups[place.group].block_tokens;
  const std::vector<BlockId>& table = (*chunk.tables)[place.group];
  const uint32_t block = position / block_tokens;
  if (block >= table.size() || table[block] == kNoBlock) return nullptr;
  return arena.row(place, table[block], position % block_tokens);
}

Result<void> write_rows(KvArena& arena, Chunk& chunk, uint32_t layer, KvLayout::Place place,
                        std::vector<float>& queries) {
  const ModelConfig& config = chunk.model->config;
  const size_t width = size_t{config.heads} * config.head_dim;
  queries.resize((chunk.end - chunk.begin) * width);
  for (uint32_t p = chunk.begin; p < chunk.end; ++p) {
    float* row = find_row(arena, chunk, place, p);
    if (row == nullptr) return Error(Errc::wrong_state, "no block to write this position to", p);
    query_and_row(*chunk.model, layer, p, hidden_at(chunk, p), &queries[(p - chunk.begin) * width],
                  row);
  }
  return {};
}

Result<void> attend_chunk(KvArena& arena, Chunk& chunk, uint32_t layer, KvLayout::Place place,
                          const std::vector<float>& queries) {
  const ModelConfig& config = chunk.model->config;
  const LayerGroup& group = config.groups[config.layers[layer]];
  const size_t width = size_t{config.heads} * config.head_dim;
  std::vector<uint32_t> seen;
  std::vector<const float*> rows;
  std::vector<float> attended(width);
  for (uint32_t p = chunk.begin; p < chunk.end; ++p) {
    visible(group, *chunk.text, p, seen);
    rows.clear();
    for (const uint32_t t : seen) {
      rows.push_back(find_row(arena, chunk, place, t));
      if (rows.back() == nullptr)
        return Error(Errc::wrong_state, "no block holds this position", t);
    }
    attend(config, &queries[(p - chunk.begin) * width], rows, attended.data());
    finish_layer(*chunk.model, layer, attended.data(), hidden_at(chunk, p));
  }
  return {};
}

void recur_chunk(const KvLayout& layout, Chunk& chunk, uint32_t layer, KvLayout::Place place) {
  const ModelConfig& config = chunk.model->config;
  const size_t begin = size_t{place.layer} * layout.state_floats;
  const std::span<float> state =
      std::span((*chunk.state)[place.group]).subspan(begin, layout.state_floats);
  std::vector<float> attended(size_t{config.heads} * config.head_dim);
  for (uint32_t p = chunk.begin; p < chunk.end; ++p) {
    recur(*chunk.model, layer, hidden_at(chunk, p), state, attended.data());
    finish_layer(*chunk.model, layer, attended.data(), hidden_at(chunk, p));
    if (chunk.states_after != nullptr) {
      std::vector<float>& after = (*chunk.states_after)[p - chunk.begin][place.group];
      std::copy(state.begin(), state.end(), after.begin() + static_cast<ptrdiff_t>(begin));
    }
  }
}

}  // namespace

void embed_chunk(Chunk& chunk) {
  chunk.hidden.resize(size_t{chunk.end - chunk.begin} * chunk.model->config.dim);
  for (uint32_t p = chunk.begin; p < chunk.end; ++p) {
    embed(*chunk.model, *chunk.text, p, hidden_at(chunk, p));
  }
}

Result<void> run_layers(KvArena& arena, std::span<Chunk> chunks) {
  const KvLayout& layout = arena.layout();
  for (Chunk& chunk : chunks) {
    if (chunk.states_after != nullptr) {
      chunk.states_after->assign(chunk.end - chunk.begin, *chunk.state);
    }
  }
  std::vector<std::vector<float>> queries(chunks.size());
  for (uint32_t layer = layout.first_layer; layer < layout.last_layer; ++layer) {
    const KvLayout::Place place = layout.places[layer - layout.first_layer];
    if (layout.recurrent(place.group)) {
      for (Chunk& chunk : chunks) recur_chunk(layout, chunk, layer, place);
      continue;
    }
    for (size_t i = 0; i < chunks.size(); ++i) {
      STEMMA_TRY_VOID(write_rows(arena, chunks[i], layer, place, queries[i]));
    }
    for (size_t i = 0; i < chunks.size(); ++i) {
      STEMMA_TRY_VOID(attend_chunk(arena, chunks[i], layer, place, queries[i]));
    }
  }
  return {};
}

std::vector<float> logits_after(const Chunk& chunk, uint32_t position) {
  std::vector<float> out(chunk.model->config.vocab_tokens);
  logits(*chunk.model, &chunk.hidden[size_t{position - chunk.begin} * chunk.model->config.dim],
         out.data());
  return out;
}

}  // namespace stemma::paged
