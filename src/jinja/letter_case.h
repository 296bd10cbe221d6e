// Upper and lower case, character by character; only the German sharp s and the dotted capital I become two.
// Threading: pure functions.
// Cost:      ASCII a comparison, all else a binary search.
#pragma once

#include <cstdint>

#include "jinja/value.h"

namespace stemma::jinja {

uint32_t to_upper(uint32_t code) noexcept;
uint32_t to_lower(uint32_t code) noexcept;
bool is_upper(uint32_t code) noexcept;
bool is_lower(uint32_t code) noexcept;
// Letters: everything that has a case, and beyond Latin, Greek and Cyrillic whatever is no space,
// punctuation or symbol as far as a few ranges tell.
bool is_letter(uint32_t code) noexcept;

enum class Casing : uint8_t { upper, lower, title, capitalize, swap };
Value change_case(Budget& budget, const TextPtr& text, Casing casing);

}  // namespace stemma::jinja
