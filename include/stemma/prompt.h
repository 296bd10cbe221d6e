// A Prompt is what an engine is about to evaluate: one token per position, and the media items that
// stand at some of those positions.
//
// A unit is a token or a whole media item. No reuse ever ends inside a unit, and a media item is
// compared by its content (kind, digest, length, causality), never by its placeholder tokens.
// Items that overlap form one unit. Threading: immutable. Ownership: borrowed spans; they must
// outlive the call they are passed to, no longer.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stemma/ids.h"

namespace stemma {

enum class MediaKind : uint8_t { image = 1, audio = 2, video = 3, other = 4 };

struct MediaItem {
  MediaKind kind = MediaKind::image;
  // What the caller computed over the item's content (the first 16 bytes of a SHA-256, say).
  std::array<uint8_t, 16> digest{};
  uint32_t offset = 0;  // First position of the item in the prompt.
  uint32_t length = 0;  // Positions it occupies; at least 1.
  bool causal = false;  // Whether its positions attend causally among themselves.
};

struct Prompt {
  std::span<const Token> tokens;
  // Ordered by offset. Tokens under an item are placeholders and are ignored.
  std::span<const MediaItem> media = {};
};

}  // namespace stemma
