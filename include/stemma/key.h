// A ContentKey names the KV state of a prefix the same way in every process and on every machine.
//
// Its first 24 bytes come from the last SHA-256 of a chain that starts with the scope and takes one
// step per block, so equal keys mean equal scope, equal words and equal media from position 0 on.
// Its last 8 bytes are the scope's fingerprint, so all keys of a scope can be found by their
// ending. Only things that leave the process have keys: disk and shared-store entries, events.
// docs/formats/content-key.md draws every byte.
// Threading: immutable value.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace stemma {

struct ContentKey {
  std::array<uint8_t, 32> bytes{};

  friend bool operator==(const ContentKey&, const ContentKey&) = default;
  // Orders by the bytes, as hex() does.
  friend std::strong_ordering operator<=>(const ContentKey& a, const ContentKey& b) noexcept {
    return std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) <=> 0;
  }

  // 64 lower-case hexadecimal digits.
  std::string hex() const;
};

// Bytes 8 to 15 of a prefix's key, which are the same in every layout (entry_key() of
// stemma/tier/tier.h). An entry uses them to name the prefix that it continues.
inline uint64_t link_of(const ContentKey& key) noexcept {
  uint64_t link = 0;
  for (size_t i = 0; i < 8; ++i) link |= uint64_t{key.bytes[8 + i]} << (8 * i);
  return link;
}

// What the bytes under a key are: a block, a segment, a whole state, a checkpoint or logits; an
// object, which is a value that an engine keeps under its own key (stemma_store.h); or a
// transcript, which is the words of an answer, not the state of an engine.
enum class EntryKind : uint8_t {
  block = 1,
  segment = 2,
  state = 3,
  checkpoint = 4,
  logits = 5,
  object = 6,
  transcript = 7
};
inline constexpr std::array kEntryKinds = {
    EntryKind::block,  EntryKind::segment, EntryKind::state,     EntryKind::checkpoint,
    EntryKind::logits, EntryKind::object,  EntryKind::transcript};

}  // namespace stemma

// The bytes are already uniform, so any eight of them are a hash.
template <>
struct std::hash<stemma::ContentKey> {
  size_t operator()(const stemma::ContentKey& key) const noexcept {
    size_t value;
    std::memcpy(&value, key.bytes.data(), sizeof value);
    return value;
  }
};
