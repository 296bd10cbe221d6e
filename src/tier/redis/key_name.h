// What an entry is called in Redis: "stemma:1:", the content key in hexadecimal, its kind, its layer
// group, with colons between. docs/formats/redis-tier.md. No braces: a cluster hashes all of it.
#pragma once

#include <charconv>
#include <cstring>
#include <string_view>

#include "stemma/tier.h"

namespace stemma::tier::redis {

inline constexpr std::string_view kKeyPrefix = "stemma:1:";
// prefix, 64 digits, ':', the longest kind ("checkpoint"), ':', three digits.
inline constexpr size_t kMostKeyBytes = kKeyPrefix.size() + 64 + 1 + 10 + 1 + 3;

// Holds a key's name; no allocation.
class KeyName {
 public:
  explicit KeyName(const EntryKey& key) noexcept {
    char* to = bytes_;
    std::memcpy(to, kKeyPrefix.data(), kKeyPrefix.size());
    to += kKeyPrefix.size();
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

}  // namespace stemma::tier::redis
