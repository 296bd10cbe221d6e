// Looking for markers in text that is still arriving.
//
// A run of blanks with a newline in it, inside a marker, matches any run of blanks and none: models are careless
// about newlines between tags. Everything else must be equal byte by byte.
//
// Threading:  pure functions.
// Cost:       find_marker is O(bytes) plus O(markers) where a byte could begin one.
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
// The first place where one of the markers stands, the longest if several do. With `final` false, a place where
// a marker may still become complete, or a longer one, is an answer without a marker.
FoundMarker find_marker(std::span<const std::string_view> markers, std::string_view text,
                        bool final) noexcept;

}  // namespace stemma::dialect
