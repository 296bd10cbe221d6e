#include "dialect/format.h"

#include <algorithm>

#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

std::string shown(std::string_view text) { return json_string(text); }

std::string shown(const std::vector<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) {
    if (!out.empty()) out += ' ';
    switch (piece.kind) {
      case PieceKind::text: out += shown(piece.text); break;
      case PieceKind::name: out += "NAME"; break;
      case PieceKind::id: out += "ID"; break;
      case PieceKind::number: out += "NUMBER"; break;
      case PieceKind::key: out += "KEY"; break;
      case PieceKind::type: out += "TYPE"; break;
    }
  }
  return out;
}

void add(std::vector<std::string>& all, std::string_view marker) {
  marker = trimmed(marker);
  if (marker.empty() || std::find(all.begin(), all.end(), marker) != all.end()) return;
  all.emplace_back(marker);
}

void describe_calls(const Format& format, std::string& out) {
  const Calls& calls = format.calls;
  const auto line = [&out](std::string_view what, std::string_view text) {
    if (!text.empty()) out += "  " + std::string(what) + ": " + std::string(text) + "\n";
  };
  const auto quoted = [](const std::string& text) {
    return text.empty() ? std::string() : shown(text);
  };
  std::string shape(name_of(calls.shape));
  if (format.channels.calls_in_header) shape = "JSON in a channel";
  if (calls.list) shape += ", in a list";
  if (calls.parallel) shape += ", several at once";
  line("calls", shape);
  line("section", quoted(calls.section_open));
  line("section ends", quoted(calls.section_close));
  line("call", quoted(calls.call_open));
  line("header", shown(calls.header));
  if (calls.name_is_key) {
    line("members", "the name is the key of the arguments");
  } else if (!calls.name_key.empty()) {
    line("members", calls.name_key + ", " + calls.arguments_key +
                        (calls.id_key.empty() ? "" : ", " + calls.id_key));
  }
  line("argument", shown(calls.argument));
  line("argument ends", quoted(calls.value_close));
  line("quote", quoted(calls.quote));
  line("call ends", quoted(calls.call_close));
}

}  // namespace

std::string_view name_of(CallShape shape) noexcept {
  switch (shape) {
    case CallShape::none: return "none";
    case CallShape::json: return "JSON object";
    case CallShape::named_json: return "name, then JSON";
    case CallShape::tagged: return "arguments in tags";
    case CallShape::literals: return "literals";
    case CallShape::python: return "Python calls";
  }
  return "none";
}

std::vector<std::string> markers(const Format& format) {
  std::vector<std::string> all;
  const Calls& calls = format.calls;
  add(all, format.thinking.opener);
  add(all, format.thinking.closer);
  add(all, format.content_open);
  add(all, format.content_close);
  for (const std::string& open : calls.optional_opens) add(all, open);
  add(all, calls.section_open);
  add(all, calls.section_close);
  add(all, calls.call_open);
  add(all, calls.call_close);
  for (const std::vector<Piece>& pieces : {calls.header, calls.argument}) {
    for (const Piece& piece : pieces) {
      if (piece.kind == PieceKind::text) add(all, piece.text);
    }
  }
  add(all, calls.value_close);
  add(all, calls.quote);
  add(all, format.channels.opener);
  add(all, format.channels.header_close);
  for (const std::string& closer : format.channels.closers) add(all, closer);
  for (const std::string& header : format.channels.thinking_headers) add(all, header);
  return all;
}

std::string describe(const Format& format) {
  std::string out = "  found by: " + format.source + "\n";
  const auto line = [&out](std::string_view what, std::string_view text) {
    out += "  " + std::string(what) + ": " + std::string(text) + "\n";
  };
  if (!format.thinking.opener.empty()) {
    line("thinking", shown(format.thinking.opener) + " to " + shown(format.thinking.closer) +
                         (format.thinking.opened_by_prompt ? ", opened by the prompt" : ""));
  }
  if (!format.thinking.field.empty()) {
    line("thinking in history",
         format.thinking.field +
             (format.thinking.kept_in_history ? ", kept" : ", dropped from older answers"));
  }
  if (!format.content_open.empty() || !format.content_close.empty()) {
    line("content", shown(format.content_open) + " to " + shown(format.content_close));
  }
  if (!format.channels.opener.empty()) {
    line("channels", shown(format.channels.opener) + " to " + shown(format.channels.header_close));
  }
  describe_calls(format, out);
  for (const std::string& end : format.call_turn_ends) line("a turn with calls ends", shown(end));
  const History& history = format.history;
  line("history", std::string(history.renders_calls ? "calls" : "no calls") +
                      (history.keeps_content ? ", content beside them" : "") +
                      (history.arguments == ArgumentsAs::text ? ", arguments as text"
                                                              : ", arguments as an object") +
                      (history.nested_as_text ? " of texts" : "") +
                      (history.results == ResultsAs::tool_messages ? ", tool messages"
                                                                   : ", results as user text") +
                      (history.ids_of_nine ? ", ids of nine" : ""));
  return out;
}

}  // namespace stemma::dialect
