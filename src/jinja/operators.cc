#include <algorithm>
#include <cmath>
#include <limits>

#include "jinja/renderer.h"

namespace stemma::jinja {
namespace {

[[noreturn]] void overflow() { fail("an integer does not fit into 64 bits"); }

std::string_view symbol(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::subtract: return "-";
    case Op::multiply: return "*";
    case Op::divide: return "/";
    case Op::floor_divide: return "//";
    case Op::modulo: return "%";
    case Op::power: return "**";
    default: return "?";
  }
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("division by zero");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value::integer(result);
}

Value integers(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Op::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Op::power: return integer_power(a, b);
    default: break;
  }
  if (b == 0) fail("division by zero");
  if (op == Op::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == Op::modulo) return Value::integer(0);
    if (a == std::numeric_limits<int64_t>::min()) overflow();
    return Value::integer(-a);
  }
  const bool round_down = a % b != 0 && (a < 0) != (b < 0);
  if (op == Op::floor_divide) return Value::integer(a / b - (round_down ? 1 : 0));
  return Value::integer(round_down ? a % b + b : a % b);
}

Value reals(Op op, double a, double b) {
  switch (op) {
    case Op::add: return Value::real(a + b);
    case Op::subtract: return Value::real(a - b);
    case Op::multiply: return Value::real(a * b);
    case Op::power: {
      if (a == 0.0 && b < 0) fail("division by zero");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        fail("a power of a negative number is complex");
      }
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a power is too large");
      return Value::real(result);
    }
    default: break;
  }
  if (b == 0.0) fail("division by zero");
  if (op == Op::divide) return Value::real(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1.0;
  } else if (remainder == 0.0) {
    remainder = std::copysign(0.0, b);
  }
  if (op == Op::modulo) return Value::real(remainder);
  if (quotient == 0.0) return Value::real(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value::real(quotient - whole > 0.5 ? whole + 1.0 : whole);
}

Value repeat(Renderer& renderer, const Value& what, int64_t count) {
  if (what.is(Kind::string)) {
    TextBuilder out(renderer.budget());
    for (int64_t i = 0; i < count && !what.as_text().bytes.empty(); ++i) {
      renderer.budget().step();
      out.add(what.as_text());
    }
    return renderer.own_text(out);
  }
  const List& list = what.as_list();
  std::vector<Value> items;
  for (int64_t i = 0; i < count && !list.items.empty(); ++i) {
    renderer.budget().steps(list.items.size());
    renderer.budget().bytes(list.items.size() * sizeof(Value));
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(renderer.budget(), std::move(items), list.kind);
}

bool is_sequence(const Value& value) {
  return value.is(Kind::string) ||
         (value.is(Kind::list) && value.as_list().kind != ListKind::generator);
}

Value join_two(Renderer& renderer, const Value& a, const Value& b) {
  if (a.is(Kind::string)) {
    TextBuilder out(renderer.budget());
    out.add(a.as_text());
    out.add(b.as_text());
    return renderer.own_text(out);
  }
  std::vector<Value> items = renderer.items_of(a);
  const std::vector<Value> more = renderer.items_of(b);
  items.insert(items.end(), more.begin(), more.end());
  return make_list(renderer.budget(), std::move(items), a.as_list().kind);
}

Value arithmetic(Renderer& renderer, Op op, const Value& a, const Value& b) {
  if (is_integral(a) && is_integral(b)) return integers(op, integral(a), integral(b));
  if (is_number(a) && is_number(b)) return reals(op, real(a), real(b));
  if (op == Op::modulo && a.is(Kind::string)) {
    return format_percent(renderer, a.as_text(), b);
  }
  if (op == Op::add && is_sequence(a) && a.kind() == b.kind() &&
      (a.is(Kind::string) || a.as_list().kind == b.as_list().kind)) {
    return join_two(renderer, a, b);
  }
  if (op == Op::multiply && is_sequence(a) && is_integral(b)) {
    return repeat(renderer, a, integral(b));
  }
  if (op == Op::multiply && is_integral(a) && is_sequence(b)) {
    return repeat(renderer, b, integral(a));
  }
  for (const Value* side : {&a, &b}) {
    if (side->is(Kind::undefined)) fail_undefined(*side);
  }
  fail("'" + std::string(type_name(a)) + "' " + std::string(symbol(op)) + " '" +
       std::string(type_name(b)) + "' is not possible");
}

}  // namespace

int64_t integer_of(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (!is_integral(value)) {
    fail(std::string(what) + " is an integer, not '" + std::string(type_name(value)) + "'");
  }
  return integral(value);
}

Value negate(const Value& value) {
  if (value.is(Kind::real)) return Value::real(-value.as_real());
  return integers(Op::subtract, 0, integral(value));
}

Value calculate(Renderer& renderer, Op op, const Value& a, const Value& b) {
  Budget& budget = renderer.budget();
  switch (op) {
    case Op::equal: return Value::boolean(equal(budget, a, b));
    case Op::unequal: return Value::boolean(!equal(budget, a, b));
    case Op::in: return Value::boolean(renderer.contains(b, a));
    case Op::not_in: return Value::boolean(!renderer.contains(b, a));
    case Op::less: return Value::boolean(compare(budget, a, b) == -1);
    case Op::less_equal: {
      const int order = compare(budget, a, b);
      return Value::boolean(order == -1 || order == 0);
    }
    case Op::greater: return Value::boolean(compare(budget, a, b) == 1);
    case Op::greater_equal: {
      const int order = compare(budget, a, b);
      return Value::boolean(order == 1 || order == 0);
    }
    default: return arithmetic(renderer, op, a, b);
  }
}

// --- slices --------------------------------------------------------------------------------------

namespace {

struct Bounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

// The same as Python's slice.indices.
Bounds resolve(const Value& start, const Value& stop, const Value& step, int64_t size) {
  Bounds bounds{};
  bounds.step = step.is(Kind::none) ? 1 : integer_of(step, "the step of a slice");
  if (bounds.step == 0) fail("the step of a slice is zero");
  const bool down = bounds.step < 0;
  const int64_t lowest = down ? -1 : 0;
  const int64_t highest = down ? size - 1 : size;
  const auto place = [&](const Value& value, int64_t left_out) {
    if (value.is(Kind::none)) return left_out;
    int64_t at = integer_of(value, "the bound of a slice");
    if (at < 0) at = at < -size ? lowest : at + size;
    return std::clamp(at, lowest, std::max(lowest, highest));
  };
  bounds.start = place(start, down ? highest : lowest);
  bounds.stop = place(stop, down ? lowest : highest);
  return bounds;
}

// Calls `take` with each index of the slice.
template <class Take>
void walk(Budget& budget, const Bounds& bounds, Take take) {
  int64_t at = bounds.start;
  while (bounds.step > 0 ? at < bounds.stop : at > bounds.stop) {
    budget.step();
    take(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, bounds.step, &at)) break;
  }
}

Value slice_text(Renderer& renderer, const TextPtr& text, const Value& start, const Value& stop,
                 const Value& step) {
  Budget& budget = renderer.budget();
  const std::string& bytes = text->bytes;
  budget.read(bytes.size());
  const auto size = static_cast<int64_t>(count_characters(bytes));
  const Bounds bounds = resolve(start, stop, step, size);
  const bool ascii = static_cast<size_t>(size) == bytes.size();
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) return make_text(budget, "");
    size_t begin = 0;
    for (int64_t i = 0; i < bounds.start; ++i) begin += character_at(bytes, begin).bytes;
    size_t end = begin;
    for (int64_t i = bounds.start; i < bounds.stop; ++i) end += character_at(bytes, end).bytes;
    return cut(budget, text, begin, end);
  }
  std::vector<size_t> places;  // Where each character begins; empty if each is a byte.
  if (!ascii) {
    budget.bytes((static_cast<size_t>(size) + 1) * sizeof(size_t));
    for (size_t at = 0; at < bytes.size(); at += character_at(bytes, at).bytes)
      places.push_back(at);
    places.push_back(bytes.size());
  }
  TextBuilder out(budget);
  walk(budget, bounds,
       [&](size_t i) { out.add(*text, ascii ? i : places[i], ascii ? i + 1 : places[i + 1]); });
  return renderer.own_text(out);
}

}  // namespace

Value slice(Renderer& renderer, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is(Kind::undefined)) fail_undefined(object);
  if (object.is(Kind::string)) return slice_text(renderer, object.text_ptr(), start, stop, step);
  if (!is_sequence(object)) {
    fail("'" + std::string(type_name(object)) + "' cannot be sliced");
  }
  const List& list = object.as_list();
  std::vector<Value> items;
  walk(renderer.budget(), resolve(start, stop, step, static_cast<int64_t>(list.items.size())),
       [&](size_t i) { items.push_back(list.items[i]); });
  return make_list(renderer.budget(), std::move(items), list.kind);
}

}  // namespace stemma::jinja
