// A Prompt is what an engine is about to evaluate: one token per position, and the media items that
// stand at some of those positions.
//
// A unit is a token or a whole media item; items that overlap form one unit. Reuse never ends
// inside a unit. A media item is compared by its content (kind, digest, length, causality), never
// by its placeholder tokens.
// Threading: immutable. Ownership: borrows its spans; they need to live only as long as the call.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/ids.h"

namespace stemma {

enum class MediaKind : uint8_t { image = 1, audio = 2, video = 3, other = 4 };

struct MediaItem {
  MediaKind kind = MediaKind::image;
  // The caller's digest of the item's content (the first 16 bytes of a SHA-256, for example).
  std::array<uint8_t, 16> digest{};
  uint32_t offset = 0;  // First position of the item in the prompt.
  uint32_t length = 0;  // Positions it occupies; at least 1.
  bool causal = false;  // Whether its positions attend to each other causally.
};

struct Prompt {
  std::span<const Token> tokens;
  // Ordered by offset. Tokens under an item are placeholders and are ignored.
  std::span<const MediaItem> media = {};
};

}  // namespace stemma
