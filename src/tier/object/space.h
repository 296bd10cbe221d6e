// Space: a namespace of values that an engine stores under its own keys, and their keys in tiers.
//
// A tier's key is a SHA-256 over the namespace's name and the engine's key. It ends with the
// namespace's fingerprint, as a prompt's keys end with their scope's, so a purge finds everything
// of a namespace. The layout (the engine's number, and the size of values) is mixed in as always
// (entry_key()): other layouts have other keys. docs/formats/object-entry.md draws the bytes.
//
// Threading:  immutable.
// Cost:       a key of up to 54 bytes takes one compression of SHA-256: about 60 ns with SHA
//             instructions; without them 390 ns, or 270 ns in a call for many keys. A longer key
//             takes two.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "key/sha256.h"
#include "stemma/result.h"
#include "stemma/tier/tier.h"
#include "tier/object/sha256_lanes.h"

namespace stemma::tier::object {

inline constexpr size_t kMostKeyBytes = 64;
inline constexpr size_t kMostNameBytes = 64;
// Of a value. Larger ones are refused before allocating anything.
inline constexpr uint64_t kMostValueBytes = uint64_t{1} << 32U;

// Whether it has 1 to 64 characters, all from A-Z a-z 0-9 . _ - / : @ +
bool is_name(std::string_view name) noexcept;

class Space {
 public:
  // value_bytes: the size of every value; 0: any size.
  // Error: invalid_argument (the name, or value_bytes is more than kMostValueBytes).
  static Result<Space> make(std::string_view name, uint64_t layout, uint64_t value_bytes);

  const std::string& name() const noexcept { return name_; }
  uint64_t layout() const noexcept { return layout_; }
  uint64_t value_bytes() const noexcept { return value_bytes_; }

  // The EntryInfo::layout of its entries.
  uint64_t tier_layout() const noexcept { return tier_layout_; }
  // The owner_of() its keys, whatever their layout.
  uint64_t owner() const noexcept;
  // Requires: key has 1 to kMostKeyBytes bytes.
  EntryKey entry_key(std::span<const uint8_t> key) const noexcept;
  // The same for many keys. Requires: `entries` has as many places.
  void entry_keys(std::span<const std::span<const uint8_t>> keys,
                  std::span<EntryKey> entries) const noexcept;
  // The EntryInfo::parent of entries that continue from this key. Never 0.
  uint64_t link(std::span<const uint8_t> key) const noexcept;

  friend bool operator==(const Space& a, const Space& b) noexcept {
    return a.name_ == b.name_ && a.layout_ == b.layout_ && a.value_bytes_ == b.value_bytes_;
  }

 private:
  Space() = default;
  ContentKey chain(std::span<const uint8_t> key) const noexcept;
  EntryKey entry_of(const key::Digest& digest) const noexcept;

  std::string name_;
  uint64_t layout_ = 0;
  uint64_t value_bytes_ = 0;
  uint64_t tier_layout_ = 0;
  std::array<uint8_t, 32> root_{};
  // The state after the first 64 bytes, which are the same for all keys.
  key::Sha256 begun_;
  ShaState state_{};
};

}  // namespace stemma::tier::object
