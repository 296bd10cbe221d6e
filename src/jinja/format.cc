#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "jinja/print.h"
#include "jinja/renderer.h"
#include "jinja/strings.h"

namespace stemma::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

struct Spec {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

// Hands out the values of 'text' % values, in order or by name.
class Source {
 public:
  Source(const Value& values) : values_(values) {}  // NOLINT: implicit is fine here.

  const Value& next() {
    const bool tuple = values_.is(Kind::list) && values_.as_list().kind == ListKind::tuple;
    if (tuple ? at_ >= values_.as_list().items.size() : at_ >= 1) {
      fail("too few values for a format");
    }
    return tuple ? values_.as_list().items[at_++] : (++at_, values_);
  }
  const Value& named(std::string_view name) const {
    const Value* value = values_.is(Kind::dict) ? values_.as_dict().find(name) : nullptr;
    if (value == nullptr) fail("a format has no value '" + std::string(name) + "'");
    return *value;
  }
  bool done() const {
    if (values_.is(Kind::list) && values_.as_list().kind == ListKind::tuple) {
      return at_ == values_.as_list().items.size();
    }
    // Any value that has items counts as one with names.
    return at_ == 1 || values_.is(Kind::dict) || values_.is(Kind::list) ||
           values_.is(Kind::undefined);
  }

 private:
  const Value& values_;
  size_t at_ = 0;
};

std::string number_text(const Spec& spec, const Value& value) {
  if (!is_number(value)) {
    fail(std::string("%") + spec.type + " needs a number, not '" + std::string(type_name(value)) +
         "'");
  }
  std::array<char, kMaxWidth + 512> buffer{};
  int size = 0;
  std::string flags = "%";
  if (spec.plus) flags += '+';
  if (spec.space) flags += ' ';
  if (spec.alternate) flags += '#';
  if (spec.type == 'f' || spec.type == 'F' || spec.type == 'e' || spec.type == 'E' ||
      spec.type == 'g' || spec.type == 'G') {
    const std::string format = flags + ".*" + spec.type;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size = std::snprintf(buffer.data(), buffer.size(), format.c_str(),
                         spec.precision < 0 ? 6 : spec.precision, real(value));
  } else {
    if (value.is(Kind::real) && (spec.type != 'd' && spec.type != 'i' && spec.type != 'u')) {
      fail(std::string("%") + spec.type + " needs an integer");
    }
    const double whole = value.is(Kind::real) ? std::trunc(value.as_real()) : 0.0;
    if (!std::isfinite(whole) || std::fabs(whole) > 9.2e18) fail("a float is no integer");
    const int64_t integer = value.is(Kind::real) ? static_cast<int64_t>(whole) : integral(value);
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal) {
      size = std::snprintf(buffer.data(), buffer.size(), (flags + ".*lld").c_str(), spec.precision,
                           static_cast<long long>(integer));
    } else {
      const uint64_t magnitude = integer < 0 ? uint64_t{0} - static_cast<uint64_t>(integer)
                                             : static_cast<uint64_t>(integer);
      size = std::snprintf(buffer.data(), buffer.size(), (flags + ".*ll" + spec.type).c_str(),
                           spec.precision, static_cast<unsigned long long>(magnitude));
    }
#pragma GCC diagnostic pop
    std::string text(buffer.data(), static_cast<size_t>(size));
    return !decimal && integer < 0 ? "-" + text : text;
  }
  return {buffer.data(), static_cast<size_t>(std::min<int>(size, buffer.size() - 1))};
}

void put(Renderer& renderer, TextBuilder& out, const Spec& spec, const Value& value) {
  Budget& budget = renderer.budget();
  Value text;
  if (spec.type == 's') {
    text = Value::of(renderer.text_of(value));
  } else if (spec.type == 'r') {
    TextBuilder quoted(budget);
    print_quoted(budget, quoted, value);
    text = renderer.own_text(quoted);
  } else if (spec.type == 'c' && value.is(Kind::string)) {
    text = value;
  } else {
    if (value.is(Kind::undefined)) fail_undefined(value);
    std::string digits = number_text(spec, value);
    if (spec.zero && !spec.left) {
      const size_t sign = digits.find_first_of("0123456789") == 0 ? 0 : 1;
      while (digits.size() < static_cast<size_t>(spec.width)) digits.insert(sign, 1, '0');
    }
    text = make_text(budget, digits);
  }
  if (spec.precision >= 0 && (spec.type == 's' || spec.type == 'r')) {
    text = slice(renderer, text, Value::none(), Value::integer(spec.precision), Value::none());
  }
  const Value padded =
      pad(budget, text.text_ptr(), spec.width, Text{" ", {}}, spec.left ? Side::left : Side::right);
  out.add(padded.as_text());
}

}  // namespace

Value format_percent(Renderer& renderer, const Text& format, const Value& values) {
  const std::string& bytes = format.bytes;
  TextBuilder out(renderer.budget());
  Source source(values);
  for (size_t at = 0; at < bytes.size();) {
    renderer.budget().step();
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.add(format, at, percent);
    at = percent + 1;
    if (percent == bytes.size()) break;
    Spec spec;
    std::optional<std::string> name;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t close = bytes.find(')', at);
      if (close == std::string::npos) fail("a format has a name that does not end");
      name = bytes.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    for (; at < bytes.size(); ++at) {
      const char c = bytes[at];
      if (c == '-')
        spec.left = true;
      else if (c == '0')
        spec.zero = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    const auto count = [&] {
      int number = 0;
      for (; at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9'; ++at) {
        number = number * 10 + (bytes[at] - '0');
        if (number > kMaxWidth) fail("a format is too wide");
      }
      return number;
    };
    spec.width = count();
    if (at < bytes.size() && bytes[at] == '.') {
      ++at;
      spec.precision = count();
    }
    if (at >= bytes.size()) fail("a format does not end");
    spec.type = bytes[at++];
    if (spec.type == '%') {
      out.add(format, at - 1, at);
      continue;
    }
    static constexpr std::string_view kTypes = "srdiuxXofFeEgGc";
    if (kTypes.find(spec.type) == std::string_view::npos) {
      fail(ProblemKind::unsupported, std::string("format '%") + spec.type + "' is not supported");
    }
    put(renderer, out, spec, name ? source.named(*name) : source.next());
  }
  if (!source.done()) fail("too many values for a format");
  return renderer.own_text(out);
}

Value format_braces(Renderer& renderer, const Text& format, const Arguments& arguments) {
  const std::string& bytes = format.bytes;
  TextBuilder out(renderer.budget());
  size_t automatic = 0;
  for (size_t at = 0; at < bytes.size();) {
    renderer.budget().step();
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.add(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.add(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t close = bytes.find('}', brace);
    if (bytes[brace] == '}' || close == std::string::npos) fail("a format has a brace too many");
    const std::string field = bytes.substr(brace + 1, close - brace - 1);
    const bool number =
        !field.empty() && field.size() < 6 &&
        std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (field.find_first_of(".:![{") != std::string::npos) {
      fail(ProblemKind::unsupported, "format '{" + field + "}' is not supported");
    }
    if (field.empty() || number) {
      const size_t index = number ? std::stoul(field) : automatic++;
      if (index >= arguments.values.size()) fail("too few values for a format");
      print(renderer.budget(), out, arguments.values[index]);
    } else {
      const Value* value = arguments.get(field);
      if (value == nullptr) fail("a format has no value '" + field + "'");
      print(renderer.budget(), out, *value);
    }
    at = close + 1;
  }
  return renderer.own_text(out);
}

}  // namespace stemma::jinja
