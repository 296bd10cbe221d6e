// Numbers between bounds, as an automaton over their digits.
//
// Written without an exponent, with at most 15 digits in all. It is exact: every text that it
// accepts is within the bounds and a multiple, and every such number with few enough digits is
// accepted.
// Threading: pure functions.
// Cost:      at most about 200 states for each remainder of `multiple_of`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "constrain/grammar_builder.h"
#include "constrain/problem.h"
#include "json/json.h"

namespace stemma::constrain {

// A decimal number, exactly.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // Without leading zeros.
  std::string fraction;     // Without zeros at the end.

  // Requires: the value is a number.
  static Decimal of(const Json& value);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  // Below 0 if this is less than `other`, 0 if they are equal.
  int compare(const Decimal& other) const;
};

struct NumberBound {
  Decimal value;
  bool inclusive = true;
};

struct NumberRange {
  std::optional<NumberBound> low{};
  std::optional<NumberBound> high{};
  std::optional<Decimal> multiple_of{};  // Above 0.
  bool whole_only = false;
};

// Problem: bounds beyond 15 digits, a multiple that would take too many states, or no number at all
// within them.
std::variant<Expr, Problem> number_in_range(GrammarBuilder& build, const NumberRange& range);
// Whether the number is within them.
bool in_range(const Decimal& value, const NumberRange& range);

}  // namespace stemma::constrain
