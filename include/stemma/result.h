// Result<T>: how a function reports anything that can go wrong in a correct program.
//
// It mirrors std::expected's names. An Error is 16 bytes, never allocates, and tells the caller how
// to act: a code grouped by what to do next, a sentence, and one number.
// A temporary Result returns its value by value, so `for (auto& x : *call())` keeps alive what it
// loops over. A reference from `call()->member()` is valid only to the end of the statement.
// Threading: immutable values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stemma/ids.h"

namespace stemma {

// Grouped by what the caller does next.
enum class Errc : uint32_t {
  // Make room: release leases, wait, or ask for less; then call again.
  out_of_blocks = 1,  // Too few blocks of some group are free or evictable: see never_fits().
  over_quota,      // The tenant's byte quota does not allow it, even after evicting its own blocks.
  over_pin_share,  // Pins would hold more of the pool than Options allows.
  out_of_memory,   // The system gave no memory.
  // Retry later: nothing is wrong with the call.
  busy,  // Something is still in use: a lease, a copy, a fence.
  // Fix the call.
  invalid_argument,  // A value that is never allowed.
  out_of_range,      // A position, index or count beyond what this object has.
  wrong_state,  // Right call, wrong moment: not committed yet, copies pending, already released.
  stale,        // The named object is gone (released, dropped, an older generation).
  unsupported,  // This cache was not created with what the call needs.
  // Recompute: the bytes are not available; the answer is still correct, only slower.
  copy_failed,  // Bytes could not be copied; compute what depended on them.
  corrupt,      // Stored bytes are not what they should be. None of them were used.
};

std::string_view to_string(Errc code) noexcept;

class [[nodiscard]] Error {
 public:
  // `message` must be a string literal: an Error owns nothing.
  constexpr Error(Errc code, const char* message, uint32_t value = kNoValue) noexcept
      : code_(static_cast<uint16_t>(code)), value_(value), message_(message) {}
  // An out_of_blocks that says how many blocks of which group are missing.
  static constexpr Error missing_blocks(const char* message, GroupIndex group, uint64_t missing,
                                        bool never_fits) noexcept {
    Error error(Errc::out_of_blocks, message,
                missing < kNoValue ? static_cast<uint32_t>(missing) : kNoValue - 1);
    error.group_ = static_cast<uint8_t>(group);
    error.about_ = never_fits ? About::too_many : About::missing;
    return error;
  }

  constexpr Errc code() const noexcept { return static_cast<Errc>(code_); }
  constexpr const char* message() const noexcept { return message_; }
  // The offending number (a position, a count, an id), or kNoValue. For out_of_blocks from a
  // PagedCache: how many blocks are missing; if never_fits(), how many are asked for in excess.
  constexpr uint32_t value() const noexcept { return value_; }
  // For out_of_blocks: the group that is short, or kMaxGroups if something else is short (the cells
  // of the index, an engine's context).
  constexpr GroupIndex group() const noexcept { return group_; }
  // For out_of_blocks: the request would not fit even if everything else were gone. Do not wait:
  // ask for less at once (LeaseOptions::draft_tokens), or refuse the request.
  constexpr bool never_fits() const noexcept { return about_ == About::too_many; }
  // "out_of_blocks: too few blocks of this group are free or evictable (17 missing in group 0)".
  std::string to_string() const;

  static constexpr uint32_t kNoValue = 0xFFFF'FFFFU;

 private:
  enum class About : uint8_t { number, missing, too_many };  // What value() counts.

  uint16_t code_;
  uint8_t group_ = kMaxGroups;
  About about_ = About::number;
  uint32_t value_;
  const char* message_;

  friend int print_value(const Error& error, char* out, size_t size) noexcept;
};
// Writes the number as text, " (17 missing in group 0)", like snprintf; nothing if there is no
// number.
int print_value(const Error& error, char* out, size_t size) noexcept;
static_assert(sizeof(Error) == 16);

// Stops the process: a Result's value was read without checking it. STEMMA_CHECK uses this too.
[[noreturn]] void fail_unchecked_result(const Error& error) noexcept;

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  Result(T value) noexcept(std::is_nothrow_move_constructible_v<T>)  // NOLINT: implicit by design
      : has_value_(true) {
    std::construct_at(&value_, std::move(value));
  }
  Result(Error error) noexcept : error_(error), has_value_(false) {}  // NOLINT: implicit by design
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(&value_, std::move(other.value_));
    } else {
      std::construct_at(&error_, other.error_);
    }
  }
  Result(const Result& other)
    requires std::is_copy_constructible_v<T>
      : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(&value_, other.value_);
    } else {
      std::construct_at(&error_, other.error_);
    }
  }
  Result& operator=(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this != &other) {
      std::destroy_at(this);
      std::construct_at(this, std::move(other));
    }
    return *this;
  }
  ~Result() {
    if (has_value_) std::destroy_at(&value_);
  }

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }

  // Requires has_value(); otherwise the process stops with the error's text.
  T& value() & noexcept { return checked(), value_; }
  const T& value() const& noexcept { return checked(), value_; }
  T value() && noexcept(std::is_nothrow_move_constructible_v<T>) {
    return checked(), std::move(value_);
  }
  T& operator*() & noexcept { return checked(), value_; }
  const T& operator*() const& noexcept { return checked(), value_; }
  T operator*() && noexcept(std::is_nothrow_move_constructible_v<T>) {
    return checked(), std::move(value_);
  }
  T* operator->() noexcept { return checked(), &value_; }
  const T* operator->() const noexcept { return checked(), &value_; }
  template <class U>
  T value_or(U&& other) && {
    return has_value_ ? std::move(value_) : static_cast<T>(std::forward<U>(other));
  }

  // Requires !has_value().
  const Error& error() const& noexcept { return error_; }
  Error error() && noexcept { return error_; }

 private:
  void checked() const noexcept {
    if (!has_value_) [[unlikely]] {
      fail_unchecked_result(error_);
    }
  }
  union {
    T value_;
    Error error_;
  };
  bool has_value_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;
  Result() noexcept : error_(Errc::invalid_argument, ""), has_value_(true) {}
  Result(Error error) noexcept : error_(error), has_value_(false) {}  // NOLINT: implicit by design
  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }
  void value() const noexcept {
    if (!has_value_) [[unlikely]] {
      fail_unchecked_result(error_);
    }
  }
  const Error& error() const& noexcept { return error_; }
  Error error() && noexcept { return error_; }

 private:
  Error error_;
  bool has_value_;
};

// Passes an error on: STEMMA_TRY(auto draft, pool.draft(n)); in a braced block.
#define STEMMA_CONCAT_INNER(a, b) a##b
#define STEMMA_CONCAT(a, b) STEMMA_CONCAT_INNER(a, b)
#define STEMMA_TRY(declaration, expression) \
  STEMMA_TRY_INNER(STEMMA_CONCAT(stemma_try_, __LINE__), declaration, expression)
#define STEMMA_TRY_INNER(name, declaration, expression) \
  auto name = (expression);                             \
  if (!name) return name.error();                       \
  declaration = *std::move(name)
#define STEMMA_TRY_VOID(expression)                             \
  if (auto STEMMA_CONCAT(stemma_try_, __LINE__) = (expression); \
      !STEMMA_CONCAT(stemma_try_, __LINE__))                    \
  return STEMMA_CONCAT(stemma_try_, __LINE__).error()

}  // namespace stemma
