#include "dialect/marker.h"

#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

constexpr size_t kMostBlanksForNewline = 64;  // More do not match.

}  // namespace

Match match_marker(std::string_view marker, std::string_view text) noexcept {
  size_t at = 0;
  for (size_t i = 0; i < marker.size();) {
    if (is_blank(marker[i])) {
      size_t end = i;
      bool newline = false;
      for (; end < marker.size() && is_blank(marker[end]); ++end) newline |= marker[end] == '\n';
      if (newline) {
        const size_t most = at + kMostBlanksForNewline;
        while (at < text.size() && at < most && is_blank(text[at])) ++at;
        i = end;
        continue;
      }
    }
    if (at == text.size()) return {MatchKind::partial, 0};
    if (text[at] != marker[i]) return {};
    ++at;
    ++i;
  }
  return {MatchKind::full, at};
}

FoundMarker find_marker(std::span<const std::string_view> markers, std::string_view text,
                        bool final) noexcept {
  bool first[256] = {};
  for (const std::string_view marker : markers) {
    if (!marker.empty()) first[static_cast<uint8_t>(marker.front())] = true;
  }
  for (size_t at = 0; at < text.size(); ++at) {
    if (!first[static_cast<uint8_t>(text[at])]) continue;
    FoundMarker found{at, kNoMarker, 0};
    bool undecided = false;
    for (size_t i = 0; i < markers.size(); ++i) {
      if (markers[i].empty() || markers[i].front() != text[at]) continue;
      const Match match = match_marker(markers[i], text.substr(at));
      undecided |= match.kind == MatchKind::partial;
      if (match.kind == MatchKind::full && match.bytes > found.bytes) {
        found.marker = i;
        found.bytes = match.bytes;
      }
    }
    if (undecided && !final) return {at, kNoMarker, 0};
    if (found.marker != kNoMarker) return found;
  }
  return {text.size(), kNoMarker, 0};
}

}  // namespace stemma::dialect
