#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "jinja/budget.h"
#include "jinja/print.h"

namespace stemma::jinja {
namespace {

void add_unit(TextBuilder& out, uint32_t unit, Origin origin) {
  std::array<char, 8> escape{};
  const int size = std::snprintf(escape.data(), escape.size(), "\\u%04x", unit & 0xFFFFU);
  out.add(std::string_view(escape.data(), static_cast<size_t>(size)), origin);
}

void quote(TextBuilder& out, const Text& text, bool ascii) {
  out.add("\"");
  out.budget().read(text.bytes.size());
  Origins origins(text);
  size_t plain = 0;  // No byte from here on has needed an escape.
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    if (c.code >= 0x20 && c.code != '"' && c.code != '\\' && (!ascii || c.code < 0x7F)) {
      at += c.bytes;
      continue;
    }
    if (c.code == kNotACharacter && !ascii) {
      at += c.bytes;
      continue;
    }
    out.add(text, plain, at);
    const Origin origin = origins.at(at);
    switch (c.code) {
      case '"': out.add("\\\"", origin); break;
      case '\\': out.add("\\\\", origin); break;
      case '\n': out.add("\\n", origin); break;
      case '\r': out.add("\\r", origin); break;
      case '\t': out.add("\\t", origin); break;
      case '\b': out.add("\\b", origin); break;
      case '\f': out.add("\\f", origin); break;
      case 0x7F: out.add("\x7F", origin); break;
      case kNotACharacter: add_unit(out, 0xFFFD, origin); break;
      default:
        if (c.code >= 0x10000) {
          add_unit(out, 0xD800 + ((c.code - 0x10000) >> 10U), origin);
          add_unit(out, 0xDC00 + ((c.code - 0x10000) & 0x3FFU), origin);
        } else {
          add_unit(out, c.code, origin);
        }
    }
    at += c.bytes;
    plain = at;
  }
  out.add(text, plain, text.bytes.size());
  out.add("\"");
}

std::string json_real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return print_real(value);
}

void new_line(TextBuilder& out, const JsonStyle& style, uint32_t depth) {
  if (!style.indented) return;
  out.add("\n");
  for (uint32_t i = 0; i < depth; ++i) out.add(style.indent);
}

void print_key(Budget& budget, TextBuilder& out, const Value& key, const JsonStyle& style) {
  if (key.is(Kind::string)) {
    quote(out, key.as_text(), style.ascii);
    return;
  }
  out.add("\"");
  print_json(budget, out, key, style);
  out.add("\"");
}

void print_object(Budget& budget, TextBuilder& out, const Dict& dict, const JsonStyle& style,
                  uint32_t depth) {
  if (dict.size() == 0) return out.add("{}");
  std::vector<const Dict::Entry*> entries;
  budget.bytes(dict.size() * sizeof(void*));
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style.sorted) {
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      return compare(budget, a->first, b->first) == -1;
    });
  }
  out.add("{");
  bool first = true;
  for (const Dict::Entry* entry : entries) {
    budget.step();
    if (!first) out.add(style.between);
    first = false;
    new_line(out, style, depth + 1);
    print_key(budget, out, entry->first, style);
    out.add(style.after_key);
    print_json(budget, out, entry->second, style, depth + 1);
  }
  new_line(out, style, depth);
  out.add("}");
}

void print_array(Budget& budget, TextBuilder& out, const List& list, const JsonStyle& style,
                 uint32_t depth) {
  if (list.items.empty()) return out.add("[]");
  out.add("[");
  bool first = true;
  for (const Value& item : list.items) {
    budget.step();
    if (!first) out.add(style.between);
    first = false;
    new_line(out, style, depth + 1);
    print_json(budget, out, item, style, depth + 1);
  }
  new_line(out, style, depth);
  out.add("]");
}

}  // namespace

void print_json(Budget& budget, TextBuilder& out, const Value& value, const JsonStyle& style,
                uint32_t depth) {
  if (depth > kMaxValueDepth) fail(ProblemKind::limit, "a value is nested too deep for JSON");
  switch (value.kind()) {
    case Kind::none: return out.add("null");
    case Kind::boolean: return out.add(value.as_boolean() ? "true" : "false");
    case Kind::integer: return out.add(std::to_string(value.as_integer()));
    case Kind::real: return out.add(json_real(value.as_real()));
    case Kind::string: return quote(out, value.as_text(), style.ascii);
    case Kind::dict: return print_object(budget, out, value.as_dict(), style, depth);
    case Kind::list:
      if (value.as_list().kind != ListKind::generator) {
        return print_array(budget, out, value.as_list(), style, depth);
      }
      break;
    default: break;
  }
  fail("'" + std::string(type_name(value)) + "' has no form in JSON");
}

}  // namespace stemma::jinja
