// Texts as the engine of these schedules reads them.
//
// The cache is given tokens, media items and a scope; the engine computes other words, made from
// all three: so a cache that mixes up scopes, pictures or placeholders serves contents that are
// visibly wrong.
// Threading: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "support/text.h"

namespace stemma::schedules {

using test::Text;

// Positions [begin, end) that cannot be parted.
struct Unit {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// The units of more than a token's standing: media items, those that share a position as one.
// Ordered.
std::vector<Unit> media_units(const Text& text);
bool inside_unit(const Text& text, uint32_t n);
// The depth at which the last `count` units begin; 0 when there are not so many.
uint32_t before_last_units(const Text& text, uint32_t count);
// How many media items are not wholly within [0, n).
uint32_t items_beyond(const Text& text, uint32_t n);

Token engine_word(uint32_t scope, Token token);
std::vector<Token> engine_words(uint32_t scope, const Text& text);

// The value that a forward pass over these words would end with.
inline constexpr uint32_t kLogits = 4;
std::array<float, kLogits> logits_after(std::span<const Token> engine_words);

}  // namespace stemma::schedules
