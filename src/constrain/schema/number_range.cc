#include "constrain/schema/number_range.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>

namespace stemma::constrain {
namespace {

// A double can tell numbers of this many digits apart, so readers that use doubles agree with our
// verdict.
constexpr uint32_t kExactDigits = 15;
constexpr uint64_t kMaxModulus = 1000;
constexpr uint64_t kMaxStates = 40'000;

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int order = a.whole.compare(b.whole); order != 0) return order;
  return a.fraction.compare(b.fraction);  // They have no zeros at the end, so this is their order.
}

// Matches the numbers >= 0 between two bounds, digit by digit. A state knows how many digits of the
// whole part remain, whether the digits so far equal those of a bound, and the remainder of the
// number so far modulo the modulus.
class DigitAutomaton {
 public:
  DigitAutomaton(GrammarBuilder& build, const std::optional<NumberBound>& low,
                 const std::optional<NumberBound>& high, uint32_t fraction_digits, uint64_t modulus)
      : build_(build),
        low_(low),
        high_(high),
        fraction_digits_(fraction_digits),
        modulus_(modulus) {}

  Expr all() {
    std::vector<Expr> lengths;
    for (uint32_t digits = 1; digits <= kExactDigits; ++digits) {
      if (low_ && low_->value.whole.size() > digits) continue;
      if (high_ && high_->value.whole.size() < digits) continue;
      State state{.left = digits,
                  .fraction = 0,
                  .fraction_limit = std::min(fraction_digits_, kExactDigits - digits),
                  .rest = 0};
      state.at_low = low_ && low_->value.whole.size() == digits;
      state.at_high = high_ && high_->value.whole.size() == digits;
      state.first = digits > 1;
      lengths.push_back(build_.call(rule_of(state)));
    }
    return build_.either(lengths);
  }
  bool too_large() const { return rules_.size() > kMaxStates; }

 private:
  struct State {
    uint32_t left;      // Remaining digits of the whole part.
    uint32_t fraction;  // Digits after the point so far.
    uint32_t fraction_limit;
    uint64_t rest;
    bool at_low = false;
    bool at_high = false;
    bool first = false;  // A zero may not come next.
    bool in_fraction = false;
    auto operator<=>(const State&) const = default;
  };

  RuleId rule_of(const State& state) {
    const auto [at, made] = rules_.try_emplace(state, RuleId{});
    if (!made) return at->second;
    const RuleId rule = build_.rule();
    at->second = rule;
    if (too_large()) return rule;
    std::vector<Expr> ways;
    const bool whole_done = state.left == 0;
    if (!whole_done || (state.in_fraction && state.fraction < state.fraction_limit)) {
      add_digits(state, ways);
    }
    if (whole_done && (!state.in_fraction || state.fraction > 0) && may_end(state)) {
      ways.push_back(build_.nothing());
    }
    if (whole_done && !state.in_fraction && state.fraction_limit > 0) {
      State next = state;
      next.in_fraction = true;
      ways.push_back(build_.sequence({build_.text("."), build_.call(rule_of(next))}));
    }
    build_.define(rule, build_.either(ways));
    return rule;
  }

  static uint32_t digit_of(const Decimal& bound, const State& state) {
    if (state.left > 0)
      return static_cast<uint32_t>(bound.whole[bound.whole.size() - state.left] - '0');
    if (state.fraction >= bound.fraction.size()) return 0;
    return static_cast<uint32_t>(bound.fraction[state.fraction] - '0');
  }

  // Digits that lead to the same state share one alternative.
  void add_digits(const State& state, std::vector<Expr>& ways) {
    const uint32_t least =
        std::max(state.at_low ? digit_of(low_->value, state) : 0U, state.first ? 1U : 0U);
    const uint32_t most = state.at_high ? digit_of(high_->value, state) : 9U;
    std::map<State, ByteSet> next_states;
    for (uint32_t digit = least; digit <= most; ++digit) {
      State next = state;
      next.first = false;
      next.rest = (state.rest * 10 + digit) % modulus_;
      next.at_low = state.at_low && digit == digit_of(low_->value, state);
      next.at_high = state.at_high && digit == most;
      if (state.left > 0) {
        --next.left;
      } else {
        ++next.fraction;
      }
      next_states[next].add(static_cast<uint8_t>('0' + digit));
    }
    for (const auto& [next, digits] : next_states) {
      ways.push_back(build_.sequence({build_.byte(digits), build_.call(rule_of(next))}));
    }
  }

  // Whether the digits so far form a number within the bounds.
  bool may_end(const State& state) const {
    const auto more = [&](const Decimal& bound) { return bound.fraction.size() > state.fraction; };
    if (state.at_low && (more(low_->value) || !low_->inclusive)) return false;
    if (state.at_high && !more(high_->value) && !high_->inclusive) return false;
    uint64_t rest = state.rest;
    if (modulus_ > 1) {
      for (uint32_t i = state.fraction; i < fraction_digits_; ++i) rest = rest * 10 % modulus_;
    }
    return rest == 0;
  }

  GrammarBuilder& build_;
  const std::optional<NumberBound>& low_;
  const std::optional<NumberBound>& high_;
  uint32_t fraction_digits_;
  uint64_t modulus_;
  std::map<State, RuleId> rules_;
};

// A multiple, as a whole number and the count of digits after the point: 0.25 is 25 and 2.
struct Multiple {
  uint64_t modulus = 1;
  uint32_t fraction_digits = kExactDigits;
};

std::optional<Multiple> multiple_for(const NumberRange& range) {
  Multiple multiple;
  if (range.whole_only) multiple.fraction_digits = 0;
  if (!range.multiple_of) return multiple;
  const std::string digits = range.multiple_of->whole + range.multiple_of->fraction;
  const auto decimals = static_cast<uint32_t>(range.multiple_of->fraction.size());
  uint64_t value = 0;
  if (digits.size() > 18 || decimals > kExactDigits) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (range.whole_only) {
    // Whole multiples of 2.5 are multiples of 5, which is value / gcd(value, 10^decimals).
    uint64_t power = 1;
    for (uint32_t i = 0; i < decimals; ++i) power *= 10;
    uint64_t a = value;
    for (uint64_t b = power; b != 0;) a = std::exchange(b, a % b);
    value /= a;
  } else {
    multiple.fraction_digits = decimals;
  }
  multiple.modulus = value;
  if (value == 0 || value > kMaxModulus) return std::nullopt;
  return multiple;
}

NumberBound opposite(NumberBound bound) {
  bound.value.negative = !bound.value.negative;
  return bound;
}

}  // namespace

Decimal Decimal::of(const Json& value) {
  std::array<char, 1100> text;
  char* end = text.data();
  if (const auto* whole = std::get_if<int64_t>(&value.value)) {
    end = std::to_chars(text.data(), text.data() + text.size(), *whole).ptr;
  } else if (const auto* large = std::get_if<uint64_t>(&value.value)) {
    end = std::to_chars(text.data(), text.data() + text.size(), *large).ptr;
  } else {
    end = std::to_chars(text.data(), text.data() + text.size(), value.number().value_or(0),
                        std::chars_format::fixed)
              .ptr;
  }
  std::string_view digits(text.data(), static_cast<size_t>(end - text.data()));
  Decimal made;
  if (digits.starts_with('-')) {
    made.negative = true;
    digits.remove_prefix(1);
  }
  const size_t point = std::min(digits.find('.'), digits.size());
  made.whole = digits.substr(0, point);
  if (point < digits.size()) made.fraction = digits.substr(point + 1);
  while (!made.fraction.empty() && made.fraction.back() == '0') made.fraction.pop_back();
  if (made.is_zero()) made.negative = false;
  return made;
}

int Decimal::compare(const Decimal& other) const {
  const bool below = negative && !is_zero();
  const bool other_below = other.negative && !other.is_zero();
  if (below != other_below) return below ? -1 : 1;
  const int order = compare_magnitudes(*this, other);
  return below ? -order : order;
}

bool in_range(const Decimal& value, const NumberRange& range) {
  if (range.whole_only && !value.fraction.empty()) return false;
  if (range.low) {
    const int order = value.compare(range.low->value);
    if (order < 0 || (order == 0 && !range.low->inclusive)) return false;
  }
  if (range.high) {
    const int order = value.compare(range.high->value);
    if (order > 0 || (order == 0 && !range.high->inclusive)) return false;
  }
  if (!range.multiple_of) return true;
  // Write both as whole numbers of the same unit, and use long division.
  const Decimal& unit = *range.multiple_of;
  const size_t decimals = std::max(unit.fraction.size(), value.fraction.size());
  const auto scaled = [&](const Decimal& number) {
    return number.whole + number.fraction + std::string(decimals - number.fraction.size(), '0');
  };
  const std::string divisor_text = scaled(unit);
  uint64_t divisor = 0;
  const char* const end = divisor_text.data() + divisor_text.size();
  if (std::from_chars(divisor_text.data(), end, divisor).ec != std::errc() || divisor == 0 ||
      divisor > (uint64_t{1} << 59U)) {
    return false;
  }
  uint64_t rest = 0;
  for (const char digit : scaled(value))
    rest = (rest * 10 + static_cast<uint64_t>(digit - '0')) % divisor;
  return rest == 0;
}

std::variant<Expr, Problem> number_in_range(GrammarBuilder& build, const NumberRange& range) {
  const std::optional<Multiple> multiple = multiple_for(range);
  if (!multiple) return Problem{"this multiple takes too many states", ""};
  NumberBound zero;
  const auto beyond = [](const std::optional<NumberBound>& bound) {
    return bound && bound->value.whole.size() > kExactDigits;
  };
  // A bound beyond all of our numbers does not count if it allows every one of them.
  std::optional<NumberBound> low = range.low;
  std::optional<NumberBound> high = range.high;
  if (beyond(low) && low->value.negative) low.reset();
  if (beyond(high) && !high->value.negative) high.reset();
  if (beyond(low) || beyond(high)) return Problem{"numbers of more than 15 digits", ""};
  if (low && high) {
    const int order = low->value.compare(high->value);
    if (order > 0 || (order == 0 && !(low->inclusive && high->inclusive))) {
      return Problem{"no number is within the bounds", ""};
    }
  }
  std::vector<Expr> signs;
  const bool some_positive =
      !high || (!high->value.negative && (!high->value.is_zero() || high->inclusive));
  if (some_positive) {
    const std::optional<NumberBound> from = low && !low->value.negative ? low : zero;
    DigitAutomaton digits(build, from, high, multiple->fraction_digits, multiple->modulus);
    signs.push_back(digits.all());
    if (digits.too_large()) return Problem{"this range takes too many states", ""};
  }
  if (!low || low->value.negative) {
    // The number without its sign, above 0: there is no -0.
    zero.inclusive = false;
    const std::optional<NumberBound> from = high && high->value.negative ? opposite(*high) : zero;
    const std::optional<NumberBound> to = low ? std::optional(opposite(*low)) : std::nullopt;
    DigitAutomaton digits(build, from, to, multiple->fraction_digits, multiple->modulus);
    signs.push_back(build.sequence({build.text("-"), digits.all()}));
    if (digits.too_large()) return Problem{"this range takes too many states", ""};
  }
  return build.either(signs);
}

}  // namespace stemma::constrain
