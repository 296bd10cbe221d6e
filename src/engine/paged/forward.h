// The forward pass over paged KV: chunks of several requests through a range of layers at once.
//
// A chunk is positions [begin, end) of one request: a piece of a prompt, one sampled token, or a
// few guesses. For each layer, all chunks first write their rows where their block tables say, then
// read whatever their positions see. A chunk reads only its own positions and positions that were
// committed before, so chunks of one batch do not depend on each other.
// Threading: one thread at a time per chunk; the arena may be shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/paged/kv_arena.h"
#include "engine/paged/model.h"

namespace stemma::paged {

using BlockTables = std::vector<std::vector<BlockId>>;  // Per group; kNoBlock where there is none.

struct Chunk {
  const Model* model = nullptr;
  const Text* text = nullptr;
  uint32_t begin = 0;
  uint32_t end = 0;
  const BlockTables* tables = nullptr;
  RunningState* state = nullptr;  // At depth `begin` before, at depth `end` after.
  // If not null, receives the state after each position of the chunk. For speculation, which may
  // have to go back to any of them.
  std::vector<RunningState>* states_after = nullptr;
  std::vector<float> hidden = {};  // (end - begin) * dim, filled by embed_chunk().
};

void embed_chunk(Chunk& chunk);

// Runs the layers of the arena's layout. Error: wrong_state if a position that must be read or
// written has no block; a correct engine and cache never cause it.
Result<void> run_layers(KvArena& arena, std::span<Chunk> chunks);

// The logits after a position of the chunk, once the last layer has run.
std::vector<float> logits_after(const Chunk& chunk, uint32_t position);

}  // namespace stemma::paged
