// An entry's name in Redis: "stemma:2:", the content key in hexadecimal, its kind and its layer
// group, with colons between (docs/formats/redis-tier.md). No braces: a cluster hashes the whole
// name.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "stemma/tier/tier.h"

namespace stemma::tier::redis {

inline constexpr std::string_view kKeyPrefix = "stemma:2:";
// The previous version's, whose keys do not tell an entry's owner.
inline constexpr std::string_view kOldKeyPrefix = "stemma:1:";
static_assert(kOldKeyPrefix.size() == kKeyPrefix.size());
// prefix, 64 digits, ':', the longest kind ("checkpoint"), ':', three digits.
inline constexpr size_t kMostKeyBytes = kKeyPrefix.size() + 64 + 1 + 10 + 1 + 3;

// Holds a key's name; no allocation.
class KeyName {
 public:
  explicit KeyName(const EntryKey& key, std::string_view prefix = kKeyPrefix) noexcept {
    char* to = bytes_;
    std::memcpy(to, prefix.data(), prefix.size());
    to += prefix.size();
    for (const uint8_t byte : key.chain.bytes) {
      *to++ = "0123456789abcdef"[byte >> 4U];
      *to++ = "0123456789abcdef"[byte & 15U];
    }
    *to++ = ':';
    const std::string_view kind = to_string(key.kind);
    std::memcpy(to, kind.data(), kind.size());
    to += kind.size();
    *to++ = ':';
    to = std::to_chars(to, bytes_ + sizeof bytes_, uint32_t{key.group}).ptr;
    size_ = static_cast<size_t>(to - bytes_);
  }
  std::string_view text() const noexcept { return {bytes_, size_}; }

 private:
  char bytes_[kMostKeyBytes];
  size_t size_;
};

// Matches the names of all entries with this owner, as a pattern for SCAN's MATCH.
inline std::string owner_pattern(const EntryKey& key) {
  constexpr size_t kOwnerDigits = 16;
  std::string pattern(KeyName(key).text().substr(0, kKeyPrefix.size() + 64));
  std::fill(pattern.begin() + kKeyPrefix.size(), pattern.end() - kOwnerDigits, '?');
  return pattern + ":*";
}

// The key with this name. None: not the name of an entry.
inline std::optional<EntryKey> parse_key_name(std::string_view name,
                                              std::string_view prefix = kKeyPrefix) {
  if (!name.starts_with(prefix) || name.size() < prefix.size() + 64) return {};
  EntryKey key;
  const char* from = name.data() + prefix.size();
  for (uint8_t& byte : key.chain.bytes) {
    if (std::from_chars(from, from + 2, byte, 16).ptr != from + 2) return {};
    from += 2;
  }
  const char* const end = name.data() + name.size();
  const std::string_view rest(from, static_cast<size_t>(end - from));
  for (const EntryKind kind : kEntryKinds) {
    const std::string middle = ":" + std::string(to_string(kind)) + ":";
    if (!rest.starts_with(middle)) continue;
    key.kind = kind;
    if (std::from_chars(from + middle.size(), end, key.group).ptr != end) return {};
    // Every key has only one name.
    return KeyName(key, prefix).text() == name ? std::optional(key) : std::nullopt;
  }
  return {};
}

}  // namespace stemma::tier::redis
