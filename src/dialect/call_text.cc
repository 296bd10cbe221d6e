// Calls as models write them: the reverse of CallReader.
#include <string>

#include "dialect/values/json_text.h"
#include "dialect/write_calls.h"

namespace stemma::dialect {

using jinja::Kind;
using jinja::Value;

namespace {

std::string header_text(const Format& format, const Call& call, size_t index) {
  std::string out;
  for (const Piece& piece : format.calls.header) {
    switch (piece.kind) {
      case PieceKind::text: out += piece.text; break;
      case PieceKind::name: out += call.name; break;
      case PieceKind::id: out += call.id; break;
      case PieceKind::number: out += std::to_string(index); break;
      default: break;
    }
  }
  return out;
}

std::string object_text(const Calls& calls, const Call& call) {
  if (calls.name_is_key) return "{" + json_string(call.name) + ": " + call.arguments + "}";
  std::string out = "{" + json_string(calls.name_key) + ": " + json_string(call.name) + ", " +
                    json_string(calls.arguments_key) + ": " + call.arguments;
  if (!calls.id_key.empty()) out += ", " + json_string(calls.id_key) + ": " + json_string(call.id);
  return out + "}";
}

// Writes MiniMax M3's objects and lists as nested tags.
std::string nested_text(std::string_view open, const Value& value) {
  const auto tag = [&](std::string_view name, const Value& inner) {
    return std::string(open) + std::string(name) + ">" + nested_text(open, inner) +
           std::string(open) + "/" + std::string(name) + ">";
  };
  std::string out;
  if (value.is(Kind::dict) && value.as_dict().size() > 0) {
    for (const auto& [key, inner] : value.as_dict().entries()) {
      out += tag(key.as_text().view(), inner);
    }
    return out;
  }
  if (value.is(Kind::list) && !value.as_list().items.empty()) {
    for (const Value& inner : value.as_list().items) out += tag("item", inner);
    return out;
  }
  return value.is(Kind::string) ? std::string(value.as_text().view()) : write_json(value);
}

std::string tags_text(const Calls& calls, const Value& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments.as_dict().entries()) {
    const std::string_view name = key.as_text().view();
    const bool is_text = value.is(Kind::string);
    for (const Piece& piece : calls.argument) {
      switch (piece.kind) {
        case PieceKind::text: out += piece.text; break;
        case PieceKind::key: out += name; break;
        case PieceKind::type: out += is_text ? "true" : "false"; break;
        default: break;
      }
    }
    const char* line = calls.value_on_lines ? "\n" : "";
    out += line;
    if (calls.nested_tags) {
      out += nested_text(trimmed(calls.argument.front().text), value);
    } else {
      out += is_text ? std::string(value.as_text().view()) : write_json(value);
    }
    out += line + calls.value_close;
    if (calls.closer_names_key) out += std::string(name) + ">";
  }
  return out;
}

// Writes values in Gemma's and Python's notation.
std::string literal_text(const Calls& calls, const Value& value) {
  const bool python = calls.shape == CallShape::python;
  switch (value.kind()) {
    case Kind::string:
      // Python strings are written as JSON strings, since Python has the same escapes.
      return python ? json_string(value.as_text().view())
                    : calls.quote + std::string(value.as_text().view()) + calls.quote;
    case Kind::list: {
      std::string out = "[";
      for (const Value& item : value.as_list().items) {
        out += (out.size() > 1 ? "," : "") + literal_text(calls, item);
      }
      return out + "]";
    }
    case Kind::dict: {
      std::string out = "{";
      for (const auto& [key, item] : value.as_dict().entries()) {
        const std::string_view name = key.as_text().view();
        out += out.size() > 1 ? "," : "";
        out += (python ? json_string(name) : std::string(name)) + ":" + literal_text(calls, item);
      }
      return out + "}";
    }
    case Kind::boolean:
      if (python) return value.as_boolean() ? "True" : "False";
      break;
    case Kind::none:
      if (python) return "None";
      break;
    default: break;
  }
  return write_json(value);
}

std::string python_arguments(const Calls& calls, const Value& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments.as_dict().entries()) {
    if (!out.empty()) out += ", ";
    out += std::string(key.as_text().view()) + "=" + literal_text(calls, value);
  }
  return out + ")";
}

std::string body_text(const Format& format, const Call& call, size_t index) {
  const Calls& calls = format.calls;
  if (calls.shape == CallShape::json) return object_text(calls, call);
  const std::string header = header_text(format, call, index);
  if (calls.shape == CallShape::named_json) return header + call.arguments;
  const std::optional<Value> read = read_json(call.arguments);
  const Value arguments = read && read->is(Kind::dict) ? *read : Value::dict({});
  switch (calls.shape) {
    case CallShape::tagged: return header + tags_text(calls, arguments);
    case CallShape::literals: return header + literal_text(calls, arguments);
    default: return header + python_arguments(calls, arguments);
  }
}

std::string channel_text(const Channels& channels, const Call& call) {
  std::string out = channels.opener;
  if (channels.call_mark.empty()) return out + call.name + channels.header_close + call.arguments;
  out += " " + channels.call_mark + call.name + "<|channel|>commentary json";
  out += channels.header_close + call.arguments;
  return out + (channels.closers.empty() ? "" : channels.closers.back());
}

}  // namespace

std::string write_calls_as_text(const Format& format, std::span<const Call> calls) {
  const Calls& shape = format.calls;
  std::string out;
  if (format.channels.calls_in_header) {
    for (const Call& call : calls) out += channel_text(format.channels, call);
    return out;
  }
  if (shape.shape == CallShape::none || calls.empty()) return out;
  out = shape.section_open + (shape.list ? "[" : "");
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += shape.list ? ", " : "\n";
    out += shape.call_open + body_text(format, calls[i], i) + shape.call_close;
  }
  return out + (shape.list ? "]" : "") + shape.section_close;
}

}  // namespace stemma::dialect
