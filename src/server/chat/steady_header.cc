#include "server/chat/steady_header.h"

#include <algorithm>
#include <string_view>

namespace stemma::server {
namespace {

// Replaces the hexadecimal number at `at` by zeros. Returns whether there is one.
bool zero_number(std::string& text, size_t at, size_t end) {
  const size_t begin = at;
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  while (at < end && is_hex(text[at])) text[at++] = '0';
  return at != begin;
}

// Returns the position after a name in [from, end), or npos.
size_t behind(const std::string& text, std::string_view name, size_t from, size_t end) {
  const size_t at = text.find(name, from);
  return at >= end ? std::string::npos : at + name.size();
}

}  // namespace

bool steady_header(std::string& text) {
  constexpr std::string_view kHeader = "x-anthropic-billing-header:";
  const size_t header = text.find(kHeader);
  if (header == std::string::npos) return false;
  const size_t begin = header + kHeader.size();
  const size_t end = std::min(text.find('\n', header), text.size());
  bool changed = false;
  if (const size_t nonce = behind(text, "cch=", begin, end); nonce != std::string::npos) {
    changed = zero_number(text, nonce, end);
  }
  size_t part = behind(text, "cc_version=", begin, end);
  // The version has three numbers; skip them.
  const size_t version_end = part == std::string::npos ? end : std::min(text.find(';', part), end);
  for (int dots = 0; dots < 3 && part != std::string::npos; ++dots) {
    part = behind(text, ".", part, version_end);
  }
  if (part != std::string::npos) changed |= zero_number(text, part, version_end);
  return changed;
}

}  // namespace stemma::server
