#include "tier/shared/names.h"

#include <algorithm>
#include <charconv>

namespace stemma::tier::shared {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::string_view kTemporary = ".stemma-tmp-";
constexpr std::string_view kMarker = "stemma shared tier, version ";
constexpr size_t kKeyDigits = 64;
constexpr size_t kMostHostBytes = 48;

void append_byte(std::string& to, uint8_t byte) {
  to += kDigits[byte >> 4U];
  to += kDigits[byte & 15U];
}

std::optional<uint8_t> take_byte(std::string_view from) noexcept {
  const size_t high = kDigits.find(from[0]), low = kDigits.find(from[1]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<uint8_t>(high << 4U | low);
}

}  // namespace

std::string folder_name(uint32_t folder) { return std::string(1, kDigits[folder & 15U]); }

std::string scope_name(uint64_t owner) {
  std::string name;
  for (uint32_t i = 0; i < 8; ++i) append_byte(name, static_cast<uint8_t>(owner >> (8 * i)));
  return name;
}

std::optional<uint64_t> parse_scope(std::string_view name) noexcept {
  if (name.size() != 16) return std::nullopt;
  uint64_t owner = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    const auto byte = take_byte(name.substr(2 * size_t{i}, 2));
    if (!byte) return std::nullopt;
    owner |= uint64_t{*byte} << (8 * i);
  }
  return owner;
}

std::string file_name(const EntryKey& key) {
  std::string name = key.chain.hex();
  name += '.';
  name += to_string(key.kind);
  name += '.';
  append_byte(name, key.group);
  return name;
}

std::optional<EntryKey> parse_name(std::string_view name) {
  if (name.size() < kKeyDigits + 5 || name[kKeyDigits] != '.') return std::nullopt;
  EntryKey key;
  for (size_t i = 0; i < key.chain.bytes.size(); ++i) {
    const auto byte = take_byte(name.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    key.chain.bytes[i] = *byte;
  }
  const std::string_view rest = name.substr(kKeyDigits + 1);
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos || rest.size() != dot + 3) return std::nullopt;
  const auto group = take_byte(rest.substr(dot + 1));
  if (!group) return std::nullopt;
  key.group = *group;
  for (const EntryKind kind : kEntryKinds) {
    key.kind = kind;
    if (to_string(kind) == rest.substr(0, dot)) return key;
  }
  return std::nullopt;
}

std::string temporary_prefix(std::string_view host, uint64_t process, uint64_t random) {
  std::string name(kTemporary);
  for (const char letter : host.substr(0, kMostHostBytes)) {
    const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                       (letter >= 'A' && letter <= 'Z');
    name += plain ? letter : '_';
  }
  name += '-';
  name += std::to_string(process);
  name += '-';
  for (uint32_t i = 0; i < 8; ++i) append_byte(name, static_cast<uint8_t>(random >> (8 * i)));
  return name + '-';
}

bool is_temporary(std::string_view name) noexcept { return name.starts_with(kTemporary); }

bool is_ours_at_top(std::string_view name) noexcept {
  const bool folder = name.size() == 1 && kDigits.find(name[0]) != std::string_view::npos;
  return name == kMarkerName || is_temporary(name) || folder || is_old_folder(name);
}

bool is_old_folder(std::string_view name) noexcept { return name.size() == 2 && take_byte(name); }

std::string marker_text(uint32_t version) {
  return std::string(kMarker) + std::to_string(version) + "\n";
}

std::optional<uint32_t> parse_marker(std::string_view text) {
  if (!text.starts_with(kMarker)) return std::nullopt;
  text.remove_prefix(kMarker.size());
  uint32_t version = 0;
  const auto [end, problem] = std::from_chars(text.begin(), text.end(), version);
  if (problem != std::errc() || version == 0 || end == text.end() || *end != '\n') {
    return std::nullopt;
  }
  return version;
}

}  // namespace stemma::tier::shared
