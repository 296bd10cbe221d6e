// The rule of structs that may grow: which struct_size is accepted, and what is read or written.
//
//   size that was ever released         its fields are used, the rest has defaults
//   larger than the newest we know      used if all that we do not know is 0
//   anything else                       refused
//
// Structs that we fill in follow the same rule, except that we do not look at anything beyond what
// we know.
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "stemma/result.h"

namespace stemma::capi {

// Sized<T> has for each such struct: kSizes, every size that was released, the newest last;
// kWrong, the message for any other size; and initial(), its defaults.
template <class T>
struct Sized;

// For a struct that has had one size so far; the arguments after it are its defaults.
#define STEMMA_SIZED(type, ...) STEMMA_SIZED_OF(type, STEMMA_SIZES(sizeof(type)), __VA_ARGS__)
// For a struct that has grown once, by `field` and what follows it.
#define STEMMA_SIZED_GROWN(type, field, ...) \
  STEMMA_SIZED_OF(type, STEMMA_SIZES(offsetof(type, field), sizeof(type)), __VA_ARGS__)

#define STEMMA_SIZES(...) {__VA_ARGS__}
#define STEMMA_SIZED_OF(type, sizes, ...)                                                   \
  template <>                                                                               \
  struct Sized<type> {                                                                      \
    static constexpr uint32_t kSizes[] = sizes;                                             \
    static constexpr const char* kWrong =                                                   \
        "struct_size of " #type " is of no known version, or what lies beyond it is not 0"; \
    static type initial() noexcept { return __VA_ARGS__; }                                  \
  }

// More than any struct of ours will grow; a larger struct_size is refused as garbage.
inline constexpr size_t kMaxUnknownBytes = 1024;

template <class T>
uint32_t size_of(const T& given) noexcept {
  uint32_t size;
  std::memcpy(&size, &given, sizeof size);
  return size;
}

template <class T>
bool is_released_size(uint32_t size) noexcept {
  static_assert(*(std::end(Sized<T>::kSizes) - 1) == sizeof(T), "the newest size is missing");
  return std::find(std::begin(Sized<T>::kSizes), std::end(Sized<T>::kSizes), size) !=
         std::end(Sized<T>::kSizes);
}

template <class T>
bool is_newer_size(uint32_t size) noexcept {
  return size > sizeof(T) && size <= sizeof(T) + kMaxUnknownBytes && size % alignof(T) == 0;
}

template <class T>
Result<void> check_size(const T& given) noexcept {
  const uint32_t size = size_of(given);
  if (is_released_size<T>(size)) return {};
  if (!is_newer_size<T>(size)) return Error(Errc::invalid_argument, Sized<T>::kWrong, size);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&given);
  uint8_t asked_for = 0;
  // NOLINTNEXTLINE: the caller says that they are there, which the analyser does not believe.
  for (size_t i = sizeof(T); i < size; ++i) asked_for |= bytes[i];
  if (asked_for != 0) return Error(Errc::invalid_argument, Sized<T>::kWrong, size);
  return {};
}

// What the caller passed, with defaults for what its struct lacks. Null: defaults.
template <class T>
Result<T> read_sized(const T* given) noexcept {
  T value = Sized<T>::initial();
  if (given == nullptr) return value;
  STEMMA_TRY_VOID(check_size(*given));
  std::memcpy(&value, given, std::min<size_t>(size_of(*given), sizeof(T)));
  return value;
}

// Whether `out` has room for a version that was released. Does not look at what lies beyond ours.
template <class T>
Result<void> check_room(const T& out) noexcept {
  const uint32_t size = size_of(out);
  if (is_released_size<T>(size) || is_newer_size<T>(size)) return {};
  return Error(Errc::invalid_argument, Sized<T>::kWrong, size);
}

// Writes as much of `value` as the caller has room for; fields unknown to us stay as they are.
// Requires check_room(*out).
template <class T>
void write_sized(T* out, const T& value) noexcept {
  constexpr size_t kAfter = sizeof(uint32_t);  // struct_size stays the caller's.
  std::memcpy(reinterpret_cast<uint8_t*>(out) + kAfter,
              reinterpret_cast<const uint8_t*>(&value) + kAfter,
              std::min<size_t>(size_of(*out), sizeof(T)) - kAfter);
}

}  // namespace stemma::capi
