#include "engine/paged/kv_arena.h"

#include <algorithm>
#include <cstring>

namespace stemma::paged {

bool KvLayout::any_recurrent() const noexcept {
  return std::any_of(groups.begin(), groups.end(), [](const GroupOptions& group) {
    return group.attention == Attention::recurrent;
  });
}

KvLayout make_layout(const ModelConfig& config, std::span<const GroupMemory> memory,
                     uint32_t first_layer, uint32_t last_layer) {
  constexpr uint32_t kUnused = ~0U;
  KvLayout layout{.first_layer = first_layer,
                  .last_layer = last_layer,
                  .row_floats = config.row_floats(),
                  .state_floats = config.state_floats()};
  std::vector<uint32_t> number(config.groups.size(), kUnused);
  for (uint32_t g = 0; g < config.groups.size(); ++g) {
    const auto begin = config.layers.begin();
    const auto count = std::count(begin + first_layer, begin + last_layer, g);
    if (count == 0) continue;
    number[g] = static_cast<uint32_t>(layout.groups.size());
    const LayerGroup& group = config.groups[g];
    const auto layers = static_cast<uint32_t>(count);
    const bool recurrent = group.attention == Attention::recurrent;
    const uint64_t floats = recurrent
                                ? uint64_t{layers} * config.state_floats()
                                : uint64_t{layers} * memory[g].block_tokens * config.row_floats();
    layout.groups.push_back({.attention = group.attention,
                             .block_tokens = memory[g].block_tokens,
                             .capacity_blocks = memory[g].capacity_blocks,
                             .window_tokens = group.window_tokens,
                             .sink_tokens = group.sink_tokens,
                             .block_bytes = floats * sizeof(float)});
    layout.group_layers.push_back(layers);
  }
  std::vector<uint32_t> seen(layout.groups.size());
  for (uint32_t layer = first_layer; layer < last_layer; ++layer) {
    const uint32_t group = number[config.layers[layer]];
    layout.places.push_back({group, seen[group]++});
  }
  return layout;
}

RunningState fresh_state(const KvLayout& layout) {
  RunningState state(layout.groups.size());
  for (GroupIndex g = 0; g < state.size(); ++g) {
    if (layout.recurrent(g)) state[g].resize(size_t{layout.group_layers[g]} * layout.state_floats);
  }
  return state;
}

KvArena::KvArena(const KvLayout& layout) : layout_(layout) {
  for (const GroupOptions& group : layout.groups) {
    block_floats_.push_back(group.block_bytes / sizeof(float));
    floats_.emplace_back(block_floats_.back() * group.capacity_blocks);
  }
}

float* KvArena::block(GroupIndex group, BlockId id) noexcept {
  return &floats_[group][to_index(id) * block_floats_[group]];
}

float* KvArena::row(KvLayout::Place place, BlockId id, uint32_t offset) noexcept {
  const size_t rows = size_t{place.layer} * layout_.groups[place.group].block_tokens + offset;
  return block(place.group, id) + rows * layout_.row_floats;
}

void KvArena::save_state(GroupIndex group, BlockId slot, std::span<const float> state) noexcept {
  std::copy(state.begin(), state.end(), block(group, slot));
}

void KvArena::load_state(GroupIndex group, BlockId slot, std::span<float> state) const noexcept {
  const float* from = &floats_[group][to_index(slot) * block_floats_[group]];
  std::copy(from, from + state.size(), state.begin());
}

void KvArena::copy(std::span<const BlockCopy> copies, Done done, void* user) {
  for (const BlockCopy& copy : copies) {
    if (copy.target == kNoBlock) continue;
    // The first positions of every layer; the source's later ones belong to somebody else.
    for (uint32_t layer = 0; layer < layout_.group_layers[copy.group]; ++layer) {
      const float* from = row({copy.group, layer}, copy.source, 0);
      std::copy(from, from + size_t{copy.tokens} * layout_.row_floats,
                row({copy.group, layer}, copy.target, 0));
    }
  }
  done(user, {});
}

void KvArena::read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes,
                   Done done, void* user) {
  const size_t each = block_floats_[group] * sizeof(float);
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::memcpy(bytes.data() + i * each, block(group, blocks[i]), each);
  }
  done(user, {});
}

void KvArena::write(GroupIndex group, std::span<const BlockId> blocks,
                    std::span<const uint8_t> bytes, Done done, void* user) {
  const size_t each = block_floats_[group] * sizeof(float);
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::memcpy(block(group, blocks[i]), bytes.data() + i * each, each);
  }
  done(user, {});
}

}  // namespace stemma::paged
