// The arithmetic of a layer, one position at a time.
//
// Every number is computed by one fixed order of operations that depends only on the position: not
// on the batch, the chunk or where a row lies. So a test can check with memcmp that results are
// bit-identical with and without the cache. (Real kernels that split their sums by batch shape give
// slightly different bits for different batches, cache or not.)
// The target is compiled with -ffp-contract=off, so that inlining cannot fuse operations either.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/paged/model.h"

namespace stemma::paged {

// out = in * matrix; each element sums its products in the order of the inputs.
void multiply(const Matrix& matrix, const float* in, float* out);

void rms_norm(std::span<const float> gain, const float* in, float* out);

// ---- Attention layers ---------------------------------------------------------------------------

// Computes a position's query and its KV row from its hidden vector, both rotated.
void query_and_row(const Model& model, uint32_t layer, uint32_t position, const float* hidden,
                   float* query, float* row);

// Attends over `rows` in the order given. out: heads * head_dim.
void attend(const ModelConfig& config, const float* query, std::span<const float* const> rows,
            float* out);

// The positions that `position` sees, ascending: a layer of this group needs their rows.
void visible(const LayerGroup& group, const Text& text, uint32_t position,
             std::vector<uint32_t>& out);

// ---- Recurrent layers ---------------------------------------------------------------------------

// Gated linear attention: each head keeps part of its state, adds key x value, reads it with the
// query. out: heads * head_dim.
void recur(const Model& model, uint32_t layer, const float* hidden, std::span<float> state,
           float* out);

// ---- The rest of a layer, and the end -----------------------------------------------------------

// Adds the projected attention and then the feed-forward net (or experts) to the hidden vector.
void finish_layer(const Model& model, uint32_t layer, const float* attended, float* hidden);

void logits(const Model& model, const float* hidden, float* out);

// Deterministic sampling: the largest of logit + noise(seed, depth, token), lowest token on ties.
// Seed 0 is greedy.
Token sample(std::span<const float> logits, uint64_t seed, uint32_t depth);

}  // namespace stemma::paged
