// Prefixes are compared by their words: one 32-bit number per position of a prompt.
//
//   0x0000'0000 .. 0x7FFF'FFFF   a token
//   0x8000'0000 .. 0xBFFF'FFFF   a position of the media item with that number (MediaTable)
//   0xFFFF'FFFF                  padding after a prompt's end; never inside one
//
// A unit is a token or a whole media item, and no reuse ends inside one. Items that share a
// position count as one item, with an identity made from all of them; items that only touch stay
// separate.
// Threading: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prompt.h"
#include "stemma/result.h"

namespace stemma::key {

inline constexpr uint32_t kMediaWord = 0x8000'0000U;
inline constexpr uint32_t kMediaNumberLimit = 1U << 30;
inline constexpr uint32_t kPadWord = 0xFFFF'FFFFU;
inline constexpr uint32_t kMaxPromptPositions = 0x7FFF'FFFFU;

constexpr bool is_token_word(uint32_t word) noexcept { return word < kMediaWord; }
constexpr bool is_media_word(uint32_t word) noexcept {
  return word - kMediaWord < kMediaNumberLimit;
}
constexpr uint32_t media_word(uint32_t number) noexcept { return kMediaWord + number; }
constexpr uint32_t media_number(uint32_t word) noexcept { return word - kMediaWord; }

// The kind of an item that overlapping items were merged into. No caller can pass it.
inline constexpr MediaKind kMixedMedia{255};

// Two media items are the same if all of these fields are equal.
struct MediaIdentity {
  MediaKind kind = MediaKind::image;
  bool causal = false;
  uint32_t length = 0;
  std::array<uint8_t, 16> digest{};

  friend bool operator==(const MediaIdentity&, const MediaIdentity&) = default;
};

// Positions [begin, end) that cannot be split.
struct UnitSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct MediaSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
  MediaIdentity identity;
};

// Checks a prompt's media items and writes its units, ordered and disjoint, to `out`. Uses no other
// memory. Ignores tokens. On error `out` is empty.
// Error: out_of_range if the prompt is longer than kMaxPromptPositions or an item ends beyond it;
// invalid_argument if an item is empty, out of order or of an unknown kind; out_of_memory. The
// error's value is the item's index.
Result<void> find_media_spans(const Prompt& prompt, std::vector<MediaSpan>& out) noexcept;

// The largest depth up to `n` that lies inside no unit. Requires: spans ordered, disjoint.
uint32_t floor_to_unit(std::span<const UnitSpan> spans, uint32_t n) noexcept;
uint32_t floor_to_unit(std::span<const MediaSpan> spans, uint32_t n) noexcept;

// The largest unit border with `units` units after it in a prompt of `length` positions.
uint32_t leave_units(std::span<const MediaSpan> spans, uint32_t length, uint32_t units) noexcept;

// Whether every value is below kTokenLimit, including placeholders under media items. This is the
// quick check; first_bad_token() is the exact one, for prompts that fail this.
bool all_tokens_valid(std::span<const Token> tokens) noexcept;

// The first position outside `media` that holds no token, if there is one.
std::optional<uint32_t> first_bad_token(std::span<const Token> tokens,
                                        std::span<const MediaSpan> media = {}) noexcept;

}  // namespace stemma::key
