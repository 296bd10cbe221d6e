// Upper and lower case, character by character. Only the German sharp s and the dotted capital I
// become two characters.
// Threading: pure functions.
// Cost:      a comparison for ASCII, a binary search for all else.
#pragma once

#include <cstdint>

#include "jinja/value.h"

namespace stemma::jinja {

uint32_t to_upper(uint32_t code) noexcept;
uint32_t to_lower(uint32_t code) noexcept;
bool is_upper(uint32_t code) noexcept;
bool is_lower(uint32_t code) noexcept;
// Letters are all characters with a case. Beyond Latin, Greek and Cyrillic, they are all characters
// that are not spaces, punctuation or symbols by a few ranges.
bool is_letter(uint32_t code) noexcept;

enum class Casing : uint8_t { upper, lower, title, capitalize, swap };
Value change_case(Budget& budget, const TextPtr& text, Casing casing);

}  // namespace stemma::jinja
