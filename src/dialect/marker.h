// Finds markers in text that is still arriving.
//
// Inside a marker, a run of blanks with a newline matches any run of blanks, also an empty one:
// models are careless about newlines between tags. Everything else must be equal byte by byte.
//
// Threading:  pure functions.
// Cost:       find_marker is O(bytes) plus O(markers) for each byte that could begin one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stemma::dialect {

enum class MatchKind : uint8_t { no, partial, full };
struct Match {
  MatchKind kind = MatchKind::no;
  size_t bytes = 0;  // Of the text, if full.
};
// Whether `text` begins with the marker; partial: it ends too early to tell.
Match match_marker(std::string_view marker, std::string_view text) noexcept;

inline constexpr size_t kNoMarker = ~size_t{0};
struct FoundMarker {
  size_t position = 0;  // Where a marker begins, or may begin; the end of the text if none does.
  size_t marker = kNoMarker;  // Which one; kNoMarker: none is complete.
  size_t bytes = 0;
};
// Finds the first place with a marker; of several there, the longest. If `final` is false and a
// marker, or a longer one, may still become complete at a place, the result is that place without a
// marker.
FoundMarker find_marker(std::span<const std::string_view> markers, std::string_view text,
                        bool final) noexcept;

}  // namespace stemma::dialect
