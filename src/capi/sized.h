// The rule of structs that may grow: which struct_size is accepted, and what is read or written.
//
//   size that was ever released         its fields are used, the rest has defaults
//   larger than the newest we know      used if all that we do not know is 0
//   anything else                       refused
//
// Structs that we fill in follow the same rule, except that nothing beyond what we know is looked at.
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "stemma/result.h"

namespace stemma::capi {

// Sized<T> says for each such struct: kSizes, every size that was released, the newest last; kWrong,
// what to say about another; and initial(), its defaults.
template <class T>
struct Sized;

// More than any struct of ours will grow; a larger struct_size is garbage and not believed.
inline constexpr size_t kMaxUnknownBytes = 1024;

template <class T>
Result<void> check_size(const T& given) noexcept {
  uint32_t size;
  std::memcpy(&size, &given, sizeof size);
  static_assert(*(std::end(Sized<T>::kSizes) - 1) == sizeof(T), "the newest size is missing");
  if (std::find(std::begin(Sized<T>::kSizes), std::end(Sized<T>::kSizes), size) !=
      std::end(Sized<T>::kSizes)) {
    return {};
  }
  if (size <= sizeof(T) || size > sizeof(T) + kMaxUnknownBytes) {
    return Error(Errc::invalid_argument, Sized<T>::kWrong, size);
  }
  const auto* unknown = reinterpret_cast<const uint8_t*>(&given) + sizeof(T);
  const auto* end = reinterpret_cast<const uint8_t*>(&given) + size;
  if (std::any_of(unknown, end, [](uint8_t byte) { return byte != 0; })) {
    return Error(Errc::invalid_argument, Sized<T>::kWrong, size);
  }
  return {};
}

// What the caller said, with defaults where it said nothing. Null: defaults.
template <class T>
Result<T> read_sized(const T* given) noexcept {
  T value = Sized<T>::initial();
  if (given == nullptr) return value;
  STEMMA_TRY_VOID(check_size(*given));
  uint32_t size;
  std::memcpy(&size, given, sizeof size);
  std::memcpy(&value, given, std::min<size_t>(size, sizeof(T)));
  return value;
}

// Whether `out` has room for a version that was released. What lies beyond ours is not looked at.
template <class T>
Result<void> check_room(const T& out) noexcept {
  uint32_t size;
  std::memcpy(&size, &out, sizeof size);
  if (size > sizeof(T) && size <= sizeof(T) + kMaxUnknownBytes) return {};
  return check_size(out);
}

// Writes as much of `value` as the caller has room for; what it knows beyond ours stays as it is.
// Requires check_room(*out).
template <class T>
void write_sized(T* out, const T& value) noexcept {
  constexpr size_t kAfter = sizeof(uint32_t);  // struct_size stays the caller's.
  uint32_t size;
  std::memcpy(&size, out, sizeof size);
  std::memcpy(reinterpret_cast<uint8_t*>(out) + kAfter,
              reinterpret_cast<const uint8_t*>(&value) + kAfter,
              std::min<size_t>(size, sizeof(T)) - kAfter);
}

}  // namespace stemma::capi
