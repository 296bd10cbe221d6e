// A Text is what a request has so far: the prompt, then what was sampled. One token per position,
// and the media items that stand at some positions.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/prompt.h"

namespace stemma::paged {

struct Text {
  std::vector<Token> tokens = {};
  std::vector<MediaItem> media = {};  // Ordered by offset.

  uint32_t size() const noexcept { return static_cast<uint32_t>(tokens.size()); }
  Prompt prompt() const noexcept { return {.tokens = tokens, .media = media}; }
};

// One past the last position that `position` attends to in a full-attention layer: itself, or the
// end of its media unit when something in that unit is not causal. Items that overlap are one unit.
uint32_t sees_until(const Text& text, uint32_t position) noexcept;

// The smallest depth at or after n that is not inside a media unit. Chunks end at such depths: the
// positions of an item that sees all of itself must be computed together.
uint32_t unit_ceiling(const Text& text, uint32_t n) noexcept;

}  // namespace stemma::paged
