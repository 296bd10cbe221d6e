// KvLayout and KvArena: the engine's own KV memory, one array of equal blocks per layer group.
//
// Stemma deals in block ids. Only this file decides where block 7 of group 1 lies and what a row
// looks like:
//
//   paged group:      [block][layer of the group][position in block][keys, then values]
//   recurrent group:  [slot][layer of the group][state]
//
// Threading:  thread-safe as long as the cache keeps its promises: rows are plain floats without a
//             lock. A reader of a row holds a lease on its block, and the writer has committed it;
//             that hand-over is the synchronisation.
// Ownership:  the arena must outlive the cache it is given to (Options::block_io) and all leases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/paged/model.h"
#include "stemma/block_io.h"
#include "stemma/options.h"

namespace stemma::paged {

// How much memory a layer group of the model gets.
struct GroupMemory {
  uint32_t block_tokens = 16;    // Ignored for recurrent groups.
  uint32_t capacity_blocks = 0;  // For recurrent groups: slots for checkpoints.
};

// Where the KV of layers [first_layer, last_layer) lies. A whole model is one such range. A rank of
// a pipeline has part of the layers, with the groups that they need.
struct KvLayout {
  struct Place {
    GroupIndex group = 0;  // Index into `groups`, which is the cache's numbering too.
    uint32_t layer = 0;    // Which layer of that group.
  };
  uint32_t first_layer = 0;
  uint32_t last_layer = 0;
  uint32_t row_floats = 0;
  uint32_t state_floats = 0;
  std::vector<Place> places = {};           // One per layer of the range.
  std::vector<GroupOptions> groups = {};    // For PagedCache::create().
  std::vector<uint32_t> group_layers = {};  // Layers in each group.

  bool recurrent(GroupIndex group) const noexcept {
    return groups[group].attention == Attention::recurrent;
  }
  bool any_recurrent() const noexcept;
};

// `memory` has an entry per group of the model.
KvLayout make_layout(const ModelConfig& config, std::span<const GroupMemory> memory,
                     uint32_t first_layer, uint32_t last_layer);
inline KvLayout make_layout(const ModelConfig& config, std::span<const GroupMemory> memory) {
  return make_layout(config, memory, 0, config.layer_count());
}

// The states of a request's recurrent layers, per group; empty for paged groups.
using RunningState = std::vector<std::vector<float>>;
RunningState fresh_state(const KvLayout& layout);

class KvArena : public BlockIo {
 public:
  explicit KvArena(const KvLayout& layout);

  const KvLayout& layout() const noexcept { return layout_; }

  // A position's row of one layer. Requires an id of this group's range.
  float* row(KvLayout::Place place, BlockId block, uint32_t offset) noexcept;

  void save_state(GroupIndex group, BlockId slot, std::span<const float> state) noexcept;
  void load_state(GroupIndex group, BlockId slot, std::span<float> state) const noexcept;

  // ---- BlockIo ----------------------------------------------------------------------------------

  // Copies without a target are states that belong to a request: the engine loads them itself.
  void copy(std::span<const BlockCopy> copies, Done done, void* user) override;
  void read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override;
  void write(GroupIndex group, std::span<const BlockId> blocks, std::span<const uint8_t> bytes,
             Done done, void* user) override;

 private:
  float* block(GroupIndex group, BlockId id) noexcept;

  KvLayout layout_;
  std::vector<size_t> block_floats_;
  std::vector<std::vector<float>> floats_;  // Per group.
};

}  // namespace stemma::paged
