#include "jinja/print.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/budget.h"
#include "jinja/object.h"

namespace stemma::jinja {
namespace {

// Characters that repr() does not escape, approximately: it escapes what no font shows.
bool is_printable(uint32_t code) noexcept {
  if (code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD) return false;
  if (code < 0x300) return true;
  if (is_space(code) || (code >= 0x200B && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) ||
      (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code >= 0xE000 && code <= 0xF8FF)) {
    return false;
  }
  return (code < 0xFFF0 || code > 0xFFFB) && code < 0xE0000;
}

void quote(TextBuilder& out, const Text& text) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char mark = has_single && !has_double ? '"' : '\'';
  out.add(std::string_view(&mark, 1));
  out.budget().read(text.bytes.size());
  Origins origins(text);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    const Origin origin = origins.at(at);
    const std::string_view bytes = text.view().substr(at, c.bytes);
    at += c.bytes;
    std::array<char, 12> escape{};
    if (c.code == static_cast<uint32_t>(mark) || c.code == '\\') {
      out.add("\\", origin);
      out.add(bytes, origin);
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out.add(c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t", origin);
    } else if (c.code == kNotACharacter || is_printable(c.code)) {
      out.add(bytes, origin);
    } else {
      const int size = c.code < 0x100     ? std::snprintf(escape.data(), 12, "\\x%02x", c.code)
                       : c.code < 0x10000 ? std::snprintf(escape.data(), 12, "\\u%04x", c.code)
                                          : std::snprintf(escape.data(), 12, "\\U%08x", c.code);
      out.add(std::string_view(escape.data(), static_cast<size_t>(size)), origin);
    }
  }
  out.add(std::string_view(&mark, 1));
}

void print_entries(Budget& budget, TextBuilder& out, const Dict& dict, uint32_t depth) {
  out.add("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    budget.step();
    if (!first) out.add(", ");
    first = false;
    print_quoted(budget, out, key, depth + 1);
    out.add(": ");
    print_quoted(budget, out, value, depth + 1);
  }
  out.add("}");
}

void print_items(Budget& budget, TextBuilder& out, const List& list, uint32_t depth) {
  const bool tuple = list.kind == ListKind::tuple;
  out.add(tuple ? "(" : "[");
  bool first = true;
  for (const Value& item : list.items) {
    budget.step();
    if (!first) out.add(", ");
    first = false;
    print_quoted(budget, out, item, depth + 1);
  }
  if (tuple && list.items.size() == 1) out.add(",");
  out.add(tuple ? ")" : "]");
}

}  // namespace

std::string print_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  auto* const end = buffer.data() + buffer.size();
  const double size = std::fabs(value);
  if (size == 0.0 || (size >= 1e-4 && size < 1e16)) {
    const auto done = std::to_chars(buffer.data(), end, value, std::chars_format::fixed);
    std::string text(buffer.data(), done.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
  }
  const auto done = std::to_chars(buffer.data(), end, value, std::chars_format::scientific);
  return {buffer.data(), done.ptr};
}

void print(Budget& budget, TextBuilder& out, const Value& value) {
  if (value.is(Kind::string)) {
    out.add(value.as_text());
  } else if (!value.is(Kind::undefined)) {
    print_quoted(budget, out, value);
  }
}

void print_quoted(Budget& budget, TextBuilder& out, const Value& value, uint32_t depth) {
  if (depth > kMaxValueDepth) fail(ProblemKind::limit, "a value to print is nested too deep");
  switch (value.kind()) {
    case Kind::undefined: out.add("Undefined"); break;
    case Kind::none: out.add("None"); break;
    case Kind::boolean: out.add(value.as_boolean() ? "True" : "False"); break;
    case Kind::integer: out.add(std::to_string(value.as_integer())); break;
    case Kind::real: out.add(print_real(value.as_real())); break;
    case Kind::string: quote(out, value.as_text()); break;
    case Kind::dict: print_entries(budget, out, value.as_dict(), depth); break;
    case Kind::list:
      if (value.as_list().kind == ListKind::generator) {
        out.add("<generator object>");
      } else {
        print_items(budget, out, value.as_list(), depth);
      }
      break;
    case Kind::method:
      out.add("<method '");
      out.add(name_of(value.as_method().id));
      out.add("'>");
      break;
    case Kind::object: {
      Object* object = value.as_object();
      if (object->kind == ObjectKind::space) {
        out.add("<Namespace ");
        print_entries(budget, out, static_cast<Namespace*>(object)->values, depth);
        out.add(">");
      } else {
        out.add("<");
        out.add(object->type_name());
        out.add(">");
      }
      break;
    }
  }
}

}  // namespace stemma::jinja
