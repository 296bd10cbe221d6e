// Envelope: the header before the value in the payload of an object's entry. It names the value in
// the engine's own words. It is compared before a byte of the value is handed out, and `stemma
// inspect` shows it. docs/formats/object-entry.md draws every byte.
//
// What read_envelope() returns is consistent in itself, and writing it gives the same bytes.
// Nothing trusts a byte. Threading: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "stemma/result.h"
#include "tier/object/space.h"

namespace stemma::tier::object {

inline constexpr size_t kEnvelopeBytes = 256;
inline constexpr uint32_t kEnvelopeVersion = 1;

// The spans and the name borrow the bytes they were read from.
struct Envelope {
  std::string_view name = {};
  uint64_t layout = 0;
  uint64_t space_value_bytes = 0;  // From the namespace; 0: any size.
  std::span<const uint8_t> key = {};
  std::span<const uint8_t> parent = {};  // Empty: unknown.
  uint32_t depth = 0;
  uint64_t value_bytes = 0;

  // Whether it belongs to this entry, which a get asks for.
  bool is_of(const Space& space, std::span<const uint8_t> wanted) const noexcept;
};

// Requires: the name is valid, and key and parent have at most kMostKeyBytes.
void write_envelope(const Envelope& envelope, std::span<uint8_t, kEnvelopeBytes> out) noexcept;

// Error: unsupported (a newer version; the value is its number), corrupt (anything else that
// write_envelope() would not have written).
Result<Envelope> read_envelope(std::span<const uint8_t, kEnvelopeBytes> bytes) noexcept;

}  // namespace stemma::tier::object
