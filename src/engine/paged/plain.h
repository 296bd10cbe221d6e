// The model without any cache: what everything else must agree with, bit by bit.
//
// All positions in one go, KV in one contiguous array per layer, no blocks, no chunks, no states
// taken up again. Threading: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/paged/model.h"

namespace stemma::paged {

// The logits after each position of a text, back to back: after(n) are those of the first n
// positions. (Inside a media item that sees all of itself, n is no depth anybody may ask about.)
struct PlainLogits {
  uint32_t vocab_tokens = 0;
  std::vector<float> values = {};
  std::span<const float> after(uint32_t n) const {
    return std::span(values).subspan(size_t{n - 1} * vocab_tokens, vocab_tokens);
  }
};

PlainLogits evaluate_plain(const Model& model, const Text& text);

}  // namespace stemma::paged
