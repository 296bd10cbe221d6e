// Calls whose arguments stand in tags.
#include "dialect/call_reader.h"
#include "dialect/marker.h"
#include "dialect/values/nested_tags.h"

namespace stemma::dialect {

using Outcome = CallReader::Outcome;

namespace {

constexpr std::string_view kCharacterData = "<![CDATA[";
constexpr size_t kMostBlanksBetween = 64;

}  // namespace

CallReader::Next CallReader::next_in_tags(std::string_view text, bool final) const {
  const Calls& calls = format_.calls;
  const Match end = match_marker(calls.call_close, text);
  if (end.kind == MatchKind::full) return Next::call_end;
  if (end.kind == MatchKind::partial && !final) return Next::unknown;
  const Match argument = match_marker(trimmed(calls.argument.front().text), text);
  if (argument.kind == MatchKind::no) return Next::neither;
  if (argument.kind == MatchKind::partial) return final ? Next::neither : Next::unknown;
  if (calls.closer_names_key) {
    if (argument.bytes == text.size()) return final ? Next::neither : Next::unknown;
    if (text[argument.bytes] == '/') return Next::neither;
  }
  return Next::argument;
}

Outcome CallReader::tags(ByteQueue& bytes, EventWriter& events) {
  bytes.skip_blanks();
  if (bytes.rest().empty()) return Outcome::more;
  switch (next_in_tags(bytes.rest(), bytes.at_end())) {
    case Next::argument:
      at_ = At::tag;
      piece_ = 0;
      key_.clear();
      type_.clear();
      return Outcome::more;
    case Next::call_end: close_arguments(events); return Outcome::done;
    case Next::unknown: return Outcome::more;
    case Next::neither: break;
  }
  return Outcome::broken;
}

void CallReader::close_arguments(EventWriter& events) {
  events.arguments(call_, arguments_told_ == 0 ? "{}" : "}");
}

Outcome CallReader::tag(ByteQueue& bytes) {
  const std::vector<Piece>& pieces = format_.calls.argument;
  if (piece_ < pieces.size()) {
    const Piece* next = piece_ + 1 < pieces.size() ? &pieces[piece_ + 1] : nullptr;
    return piece(pieces[piece_], next, bytes);
  }
  at_ = At::tag_value;
  value_opened_ = false;
  in_character_data_ = false;
  scanned_ = 0;
  value_closer_ = format_.calls.value_close;
  if (format_.calls.closer_names_key) value_closer_ += key_ + ">";
  if (type_.empty()) {
    value_type_ = type_of_argument(tool_->parameters, key_);
  } else {
    value_type_ = type_ == "true" || type_ == "string" ? ArgumentType::text : ArgumentType::other;
  }
  return Outcome::more;
}

void CallReader::tell_key(EventWriter& events) {
  events.arguments(call_, (arguments_told_++ == 0 ? "{" : ",") + json_string(key_) + ":");
}

// Looks at the first bytes of a value. Returns false if more bytes are needed.
bool CallReader::open_tag_value(ByteQueue& bytes, EventWriter& events) {
  const std::string_view text = bytes.rest();
  if (text.empty()) return false;
  size_t skip = format_.calls.value_on_lines && text.front() == '\n' ? 1 : 0;
  if (format_.calls.character_data) {
    const Match match = match_marker(kCharacterData, text.substr(skip));
    if (match.kind == MatchKind::partial && !bytes.at_end()) return false;
    if (match.kind == MatchKind::full) {
      in_character_data_ = true;
      value_closer_ = "]]>" + value_closer_;
      skip += match.bytes;
      // Templates write numbers and booleans without this newline.
      if (value_type_ == ArgumentType::unknown) value_type_ = ArgumentType::text;
    }
  }
  bytes.read(skip);
  bytes.commit();
  value_opened_ = true;
  if (value_type_ == ArgumentType::text) {
    tell_key(events);
    events.arguments(call_, "\"");
  }
  return true;
}

void CallReader::tell_text(ByteQueue& bytes, size_t count, EventWriter& events) {
  std::string escaped;
  append_json_escaped(escaped, bytes.rest().substr(0, count));
  events.arguments(call_, escaped);
  bytes.read(count);
  bytes.commit();
}

Outcome CallReader::tag_value(ByteQueue& bytes, EventWriter& events) {
  if (!value_opened_ && !open_tag_value(bytes, events)) return Outcome::more;
  const std::string_view text = bytes.rest();
  const std::string_view closers[] = {value_closer_};
  for (;;) {
    const FoundMarker found = find_marker(closers, text.substr(scanned_), false);
    const size_t end = scanned_ + found.position;
    scanned_ = end;
    if (found.marker == kNoMarker) break;
    size_t behind = end + found.bytes;
    const size_t most = behind + kMostBlanksBetween;
    while (behind < text.size() && behind < most && is_blank(text[behind])) ++behind;
    const bool cut = behind == text.size() && bytes.at_end();
    const Next next =
        behind == text.size() ? Next::unknown : next_in_tags(text.substr(behind), bytes.at_end());
    if (next == Next::unknown && !cut) break;
    if (next == Next::neither) {
      ++scanned_;  // Part of the value: nothing that may follow a value follows.
      continue;
    }
    size_t size = end;
    const bool on_lines = format_.calls.value_on_lines && !in_character_data_;
    if (on_lines && size > 0 && text[size - 1] == '\n') --size;
    end_tag_value(text.substr(0, size), events);
    bytes.read(end + found.bytes);
    bytes.commit();
    at_ = At::tags;
    return Outcome::more;
  }
  if (value_type_ == ArgumentType::text && scanned_ > 0) {
    const size_t hold = text[scanned_ - 1] == '\n' ? 1 : 0;
    const size_t count = scanned_ - hold;
    scanned_ = hold;
    if (count > 0) tell_text(bytes, count, events);
  }
  return Outcome::more;
}

void CallReader::end_tag_value(std::string_view written, EventWriter& events) {
  if (value_type_ == ArgumentType::text) {
    std::string escaped;
    append_json_escaped(escaped, written);
    events.arguments(call_, escaped + "\"");
    return;
  }
  tell_key(events);
  const Calls& calls = format_.calls;
  if (calls.nested_tags) {
    events.arguments(
        call_, nested_tags_as_json(trimmed(calls.argument.front().text), written, value_type_));
  } else {
    events.arguments(call_, argument_as_json(written, value_type_));
  }
}

}  // namespace stemma::dialect
