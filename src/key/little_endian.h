// Writes numbers low byte first on every machine. Each function returns the position after the
// bytes it wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stemma::key {

template <class Unsigned>
inline uint8_t* put_le(uint8_t* to, Unsigned value) noexcept {
  for (size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
  return to + sizeof value;
}

inline uint8_t* put_bytes(uint8_t* to, const void* from, size_t size) noexcept {
  std::memcpy(to, from, size);
  return to + size;
}

}  // namespace stemma::key
