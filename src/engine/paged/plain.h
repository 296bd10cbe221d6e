// The model without any cache: everything else must agree with it, bit by bit.
//
// It computes all positions in one go, with KV in one contiguous array per layer: no blocks, no
// chunks, no resumed states. Threading: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/paged/model.h"

namespace stemma::paged {

// The logits after each position of a text, back to back: after(n) returns those of the first n
// positions. (n must not be inside a media item that sees all of itself.)
struct PlainLogits {
  uint32_t vocab_tokens = 0;
  std::vector<float> values = {};
  std::span<const float> after(uint32_t n) const {
    return std::span(values).subspan(size_t{n - 1} * vocab_tokens, vocab_tokens);
  }
};

PlainLogits evaluate_plain(const Model& model, const Text& text);

}  // namespace stemma::paged
