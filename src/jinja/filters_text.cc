#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "jinja/filters.h"
#include "jinja/letter_case.h"
#include "jinja/print.h"
#include "jinja/renderer.h"
#include "jinja/strings.h"

namespace stemma::jinja {
namespace {

using R = Renderer;
using V = Value;
using A = Arguments;

template <Casing casing>
V change(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  return change_case(renderer.budget(), renderer.text_of(input), casing);
}

// Jinja's own rule: words begin after spaces, hyphens and brackets, but not after apostrophes.
V title(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  Budget& budget = renderer.budget();
  const TextPtr text = renderer.text_of(input);
  TextBuilder out(budget);
  Origins origins(*text);
  budget.read(text->bytes.size());
  bool begins = true;
  for (size_t at = 0; at < text->bytes.size();) {
    const Character c = character_at(text->bytes, at);
    std::array<char, 4> room{};
    if (c.code == kNotACharacter) {
      out.add(text->view().substr(at, c.bytes), origins.at(at));
    } else {
      out.add(encode_utf8(begins ? to_upper(c.code) : to_lower(c.code), room), origins.at(at));
    }
    begins = c.code == '-' || c.code == '(' || c.code == '{' || c.code == '[' || c.code == '<' ||
             is_space(c.code);
    at += c.bytes;
  }
  return renderer.own_text(out);
}

V trim(R& renderer, const V& input, const A& arguments) {
  arguments.only({"chars"});
  const Value* given = arguments.get(0, "chars");
  const TextPtr characters =
      given == nullptr || given->is(Kind::none) ? nullptr : renderer.text_of(*given);
  return strip(renderer.budget(), renderer.text_of(input), characters.get(), Side::both);
}

V replace_text(R& renderer, const V& input, const A& arguments) {
  arguments.only({"old", "new", "count"});
  const Value* count = arguments.get(2, "count");
  const TextPtr old = renderer.text_of(arguments.need(0, "old"));
  const TextPtr with = renderer.text_of(arguments.need(1, "new"));
  return replace(renderer.budget(), *renderer.text_of(input), *old, *with,
                 count != nullptr && !count->is(Kind::none) ? integer_of(*count, "'count'") : -1);
}

V indent(R& renderer, const V& input, const A& arguments) {
  arguments.only({"width", "first", "blank"});
  if (!input.is(Kind::string)) fail("'indent' is for strings");
  Budget& budget = renderer.budget();
  const Value* width = arguments.get(0, "width");
  const Value* first = arguments.get(1, "first");
  const Value* blank = arguments.get(2, "blank");
  Value by;
  if (width != nullptr && width->is(Kind::string)) {
    by = *width;
  } else {
    const int64_t count = width != nullptr ? integer_of(*width, "'width'") : 4;
    by = calculate(renderer, Op::multiply, make_text(budget, " "), Value::integer(count));
  }
  const bool all = blank != nullptr && is_true(*blank);
  // Add a newline, as Jinja does: then a text that ends with one has an empty last line.
  TextBuilder extended(budget);
  extended.add(*renderer.text_of(input));
  extended.add("\n");
  const auto text = std::make_shared<const Text>(extended.take());
  const std::vector<Value> lines = split_lines(budget, text, false);
  TextBuilder out(budget);
  if (first != nullptr && is_true(*first)) out.add(by.as_text());
  bool is_first = true;
  for (const Value& line : lines) {
    if (!is_first) {
      out.add("\n");
      if (all || !line.as_text().bytes.empty()) out.add(by.as_text());
    }
    is_first = false;
    out.add(line.as_text());
  }
  return renderer.own_text(out);
}

V escape(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  const TextPtr text = renderer.text_of(input);
  TextBuilder out(renderer.budget());
  Origins origins(*text);
  renderer.budget().read(text->bytes.size());
  for (size_t at = 0; at < text->bytes.size(); ++at) {
    const Origin origin = origins.at(at);
    switch (text->bytes[at]) {
      case '&': out.add("&amp;", origin); break;
      case '<': out.add("&lt;", origin); break;
      case '>': out.add("&gt;", origin); break;
      case '\'': out.add("&#39;", origin); break;
      case '"': out.add("&#34;", origin); break;
      default: out.add(text->view().substr(at, 1), origin);
    }
  }
  return renderer.own_text(out);
}

V to_json(R& renderer, const V& input, const A& arguments) {
  arguments.only({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  const Value* ascii = arguments.get(0, "ensure_ascii");
  const Value* by = arguments.get(1, "indent");
  if (ascii != nullptr) style.ascii = is_true(*ascii);
  if (by != nullptr && !by->is(Kind::none)) {
    style.indented = true;
    style.between = {",", {}};
    style.indent =
        by->is(Kind::string)
            ? by->as_text()
            : calculate(renderer, Op::multiply, make_text(renderer.budget(), " "), *by).as_text();
  }
  if (const Value* separators = arguments.get(2, "separators");
      separators != nullptr && !separators->is(Kind::none)) {
    const std::vector<Value> two = renderer.items_of(*separators);
    if (two.size() != 2) fail("'separators' are two");
    style.between = *renderer.text_of(two[0]);
    style.after_key = *renderer.text_of(two[1]);
  }
  if (const Value* sorted = arguments.get(3, "sort_keys")) style.sorted = is_true(*sorted);
  TextBuilder out(renderer.budget());
  print_json(renderer.budget(), out, input, style);
  return renderer.own_text(out);
}

// --- numbers -------------------------------------------------------------------------------------

std::string stripped(const V& input) {
  const std::string_view view = input.as_text().view();
  const size_t begin = skip_space(view, 0);
  std::string text(view.substr(begin, skip_space_back(view, begin, view.size()) - begin));
  // Python allows underscores between digits.
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (text[i] == '_' && digit(text[i - 1]) && digit(text[i + 1])) text.erase(i--, 1);
  }
  return text;
}

std::optional<double> parse_real(const V& input) {
  std::string text = stripped(input);
  if (text.starts_with('+')) text.erase(0, 1);
  const auto readable = [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
  };
  if (text.empty() || !std::all_of(text.begin(), text.end(), readable)) {
    std::string word = text;
    for (char& c : word) c = static_cast<char>(to_lower(static_cast<uint8_t>(c)));
    const bool minus = word.starts_with('-');
    if (minus) word.erase(0, 1);
    if (word == "inf" || word == "infinity") return minus ? -HUGE_VAL : HUGE_VAL;
    if (word == "nan") return std::nan("");
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> whole(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  const double cut_off = std::trunc(value);
  if (cut_off < -9.2e18 || cut_off > 9.2e18) fail("an integer does not fit into 64 bits");
  return static_cast<int64_t>(cut_off);
}

V to_int(R& /*renderer*/, const V& input, const A& arguments) {
  arguments.only({"default", "base"});
  if (input.is(Kind::undefined)) fail_undefined(input);
  const Value* given = arguments.get(0, "default");
  const Value otherwise = given != nullptr ? *given : Value::integer(0);
  const Value* base_given = arguments.get(1, "base");
  const int64_t base = base_given != nullptr ? integer_of(*base_given, "'base'") : 10;
  if (base < 2 || base > 36) fail("'base' is from 2 to 36");
  std::optional<int64_t> value;
  if (is_integral(input)) {
    value = integral(input);
  } else if (input.is(Kind::real)) {
    value = whole(input.as_real());
  } else if (input.is(Kind::string)) {
    std::string text = stripped(input);
    if (text.starts_with('+')) text.erase(0, 1);
    const size_t sign = text.starts_with('-') ? 1 : 0;
    if (text.size() > sign + 2 && text[sign] == '0') {
      const char mark = static_cast<char>(text[sign + 1] | 0x20);
      if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) {
        text.erase(sign, 2);
      }
    }
    int64_t parsed = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), parsed, static_cast<int>(base));
    if (error == std::errc::result_out_of_range) fail("an integer does not fit into 64 bits");
    if (error == std::errc() && end == text.data() + text.size()) {
      value = parsed;
    } else if (const auto real = parse_real(input)) {
      value = whole(*real);
    }
  }
  return value ? Value::integer(*value) : otherwise;
}

V to_float(R& /*renderer*/, const V& input, const A& arguments) {
  arguments.only({"default"});
  if (input.is(Kind::undefined)) fail_undefined(input);
  const Value* given = arguments.get(0, "default");
  if (is_number(input)) return Value::real(real(input));
  if (input.is(Kind::string)) {
    if (const auto value = parse_real(input)) return Value::real(*value);
  }
  return given != nullptr ? *given : Value::real(0.0);
}

V round_number(R& /*renderer*/, const V& input, const A& arguments) {
  arguments.only({"precision", "method"});
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (!is_number(input)) fail("'" + std::string(type_name(input)) + "' cannot be rounded");
  const Value* places = arguments.get(0, "precision");
  const Value* how = arguments.get(1, "method");
  const int64_t precision = places != nullptr ? integer_of(*places, "'precision'") : 0;
  const std::string method =
      how != nullptr && how->is(Kind::string) ? how->as_text().bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("'method' is common, ceil or floor");
  }
  if (precision < -300 || precision > 300) fail("'precision' is from -300 to 300");
  if (method == "common" && is_integral(input) && precision >= 0)
    return Value::integer(integral(input));
  const double value = real(input);
  if (method == "common" && precision >= 0) {
    // Round the exact value in decimal, as Python does.
    std::array<char, 1024> buffer{};
    const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, static_cast<int>(precision));
    if (done.ec != std::errc()) return Value::real(value);
    return Value::real(std::strtod(std::string(buffer.data(), done.ptr).c_str(), nullptr));
  }
  const double factor = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value * factor;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return Value::real(rounded / factor);
}

V absolute(R& /*renderer*/, const V& input, const A& arguments) {
  arguments.only({});
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (!is_number(input)) fail("'" + std::string(type_name(input)) + "' has no absolute value");
  if (input.is(Kind::real)) return Value::real(std::fabs(input.as_real()));
  return integral(input) < 0 ? negate(input) : Value::integer(integral(input));
}

V as_string(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  return Value::of(renderer.text_of(input));
}

V otherwise(R& renderer, const V& input, const A& arguments) {
  arguments.only({"default_value", "boolean"});
  const Value* value = arguments.get(0, "default_value");
  const Value* by_truth = arguments.get(1, "boolean");
  const bool lacking =
      input.is(Kind::undefined) || (by_truth != nullptr && is_true(*by_truth) && !is_true(input));
  if (!lacking) return input;
  return value != nullptr ? *value : make_text(renderer.budget(), "");
}

V word_count(R& renderer, const V& input, const A& arguments) {
  arguments.only({});
  const TextPtr text = renderer.text_of(input);
  renderer.budget().read(text->bytes.size());
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text->bytes.size();) {
    const Character one = character_at(text->bytes, at);
    const bool digit = one.code >= '0' && one.code <= '9';
    const bool belongs = digit || one.code == '_' || is_letter(one.code);
    if (belongs && !inside) ++count;
    inside = belongs;
    at += one.bytes;
  }
  return Value::integer(count);
}

V center(R& renderer, const V& input, const A& arguments) {
  arguments.only({"width"});
  const Value* width = arguments.get(0, "width");
  return pad(renderer.budget(), renderer.text_of(input),
             width != nullptr ? integer_of(*width, "'width'") : 80, Text{" ", {}}, Side::both);
}

V format(R& renderer, const V& input, const A& arguments) {
  const TextPtr text = renderer.text_of(input);
  if (!arguments.named.empty()) {
    Dict dict;
    for (const auto& [name, value] : arguments.named) {
      dict.set(make_text(renderer.budget(), name), value);
    }
    return format_percent(renderer, *text, make_dict(renderer.budget(), std::move(dict)));
  }
  return format_percent(renderer, *text,
                        make_list(renderer.budget(), arguments.values, ListKind::tuple));
}

constexpr std::array kTextFilters = {
    FilterEntry{"abs", absolute},
    FilterEntry{"capitalize", change<Casing::capitalize>},
    FilterEntry{"center", center},
    FilterEntry{"d", otherwise},
    FilterEntry{"default", otherwise},
    FilterEntry{"e", escape},
    FilterEntry{"escape", escape},
    FilterEntry{"float", to_float},
    FilterEntry{"forceescape", escape},
    FilterEntry{"format", format},
    FilterEntry{"indent", indent},
    FilterEntry{"int", to_int},
    FilterEntry{"lower", change<Casing::lower>},
    FilterEntry{"replace", replace_text},
    FilterEntry{"round", round_number},
    FilterEntry{"safe", as_string},
    FilterEntry{"string", as_string},
    FilterEntry{"title", title},
    FilterEntry{"tojson", to_json},
    FilterEntry{"trim", trim},
    FilterEntry{"upper", change<Casing::upper>},
    FilterEntry{"wordcount", word_count},
};

}  // namespace

std::span<const FilterEntry> text_filters() noexcept { return kTextFilters; }

FilterFunction find_filter(std::string_view name) noexcept {
  for (const auto filters : {text_filters(), list_filters()}) {
    for (const FilterEntry& entry : filters) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

}  // namespace stemma::jinja
