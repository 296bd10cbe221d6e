#include "constrain/token_table.h"

#include <algorithm>

namespace stemma::constrain {
namespace {

constexpr size_t kMaxTokenBytes = 60'000;  // Depths are 16 bits.

size_t common_bytes(std::string_view a, std::string_view b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

TokenTable::TokenTable(std::span<const std::string> tokens) {
  begin_.push_back(0);
  for (uint32_t token = 0; token < tokens.size(); ++token) {
    const std::string& text = tokens[token];
    // A text this long is not a real token; it is never allowed.
    if (text.size() <= kMaxTokenBytes) {
      text_ += text;
      if (!text.empty()) sorted_.push_back(token);
      longest_bytes_ = std::max(longest_bytes_, static_cast<uint32_t>(text.size()));
    }
    begin_.push_back(static_cast<uint32_t>(text_.size()));
  }
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> open;  // The nodes from the root to the last one.
  std::string_view last;
  for (uint32_t i = 0; i < sorted_.size(); ++i) {
    const std::string_view text = bytes(sorted_[i]);
    const size_t common = common_bytes(last, text);
    if (common == text.size() && common == last.size() && i != 0) continue;  // Same bytes.
    for (; open.size() > common; open.pop_back()) {
      nodes_[open.back()].after = static_cast<uint32_t>(nodes_.size());
    }
    for (size_t depth = common; depth < text.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.after = 0,
                        .first_token = i,
                        .depth = static_cast<uint16_t>(depth),
                        .byte = static_cast<uint8_t>(text[depth])});
    }
    last = text;
  }
  for (const uint32_t node : open) nodes_[node].after = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.after = static_cast<uint32_t>(nodes_.size() + 1),
                    .first_token = static_cast<uint32_t>(sorted_.size()),
                    .depth = 0,
                    .byte = 0});
}

}  // namespace stemma::constrain
