// Calls that are JSON objects, and arguments that are JSON.
#include "dialect/call_reader.h"
#include "dialect/marker.h"

namespace stemma::dialect {

using Outcome = CallReader::Outcome;
using Verdict = JsonScanner::Verdict;

namespace {

constexpr size_t kMostTokenBytes = 1024;  // Limit of a member's name, a tool's name or an id.

// Size of the JSON string at the front of `text`; 0 if it is incomplete.
size_t string_bytes(std::string_view text, bool& bad) {
  JsonScanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const Verdict verdict = scanner.push(text[i]);
    if (verdict == Verdict::done) return i + 1;
    bad = bad || verdict != Verdict::more;
  }
  return 0;
}

}  // namespace

Outcome CallReader::object(ByteQueue& bytes) {
  bytes.skip_blanks();
  if (bytes.rest().empty()) return Outcome::more;
  if (bytes.rest().front() != '{') return failed();
  bytes.read(1);
  at_ = At::member;
  return Outcome::more;
}

Outcome CallReader::member(ByteQueue& bytes, EventWriter& events) {
  bytes.skip_blanks();
  const std::string_view text = bytes.rest();
  if (text.empty()) return Outcome::more;
  if (text.front() == '}') {
    bytes.read(1);
    return end_object(events);
  }
  if (text.front() != '"') return failed();
  bool bad = false;
  const size_t size = string_bytes(text.substr(0, kMostTokenBytes), bad);
  if (bad || (size == 0 && text.size() >= kMostTokenBytes)) return failed();
  if (size == 0) return Outcome::more;
  const std::string key = json_unquoted(text.substr(0, size)).value_or("");
  bytes.read(size);
  return choose_member(key);
}

Outcome CallReader::choose_member(std::string_view key) {
  const Calls& calls = format_.calls;
  if (calls.name_is_key) {
    const Tool* tool = find_tool(key);
    if (tool == nullptr || tool_ != nullptr) return failed();
    tool_ = tool;
    member_ = Member::arguments;
  } else if (key == calls.name_key) {
    member_ = Member::name;
  } else if (key == calls.arguments_key) {
    if (have_arguments_) return failed();  // The member came twice.
    member_ = Member::arguments;
  } else if (!calls.id_key.empty() && key == calls.id_key) {
    member_ = Member::id;
  } else {
    if (strict_ && key != "type" && key != "id") return failed();
    member_ = Member::other;
  }
  at_ = At::colon;
  return Outcome::more;
}

Outcome CallReader::value(ByteQueue& bytes, EventWriter& events) {
  if (at_ == At::colon) {
    bytes.skip_blanks();
    if (bytes.rest().empty()) return Outcome::more;
    if (bytes.rest().front() != ':') return failed();
    bytes.read(1);
    at_ = At::value;
    value_started_ = false;
    return Outcome::more;
  }
  if (!value_started_) {
    bytes.skip_blanks();
    if (bytes.rest().empty()) return Outcome::more;
    const Outcome outcome = begin_value(bytes.rest().front(), events);
    if (outcome != Outcome::more) return outcome;
  }
  const std::string_view text = bytes.rest();
  const size_t room = value_room();
  for (size_t i = 0; i < text.size(); ++i) {
    const Verdict verdict = i == room ? Verdict::bad : scanner_.push(text[i]);
    if (verdict == Verdict::more) continue;
    const size_t end = verdict == Verdict::done ? i + 1 : i;
    take_value(text.substr(0, end), events);
    bytes.read(end);
    return verdict == Verdict::bad ? failed() : end_value(events);
  }
  take_value(text, events);
  bytes.read(text.size());
  return Outcome::more;
}

// How many more bytes of the value may be kept.
size_t CallReader::value_room() const noexcept {
  if (member_ == Member::other) return SIZE_MAX;
  if (member_ != Member::arguments) return kMostTokenBytes - token_.size();
  return begun_ && !encoded_arguments_ ? SIZE_MAX : kMostValueBytes - held_arguments_.size();
}

Outcome CallReader::begin_value(char first, EventWriter& events) {
  value_started_ = true;
  scanner_ = JsonScanner();
  token_.clear();
  if (member_ == Member::name && (first != '"' || tool_ != nullptr)) return failed();
  if (member_ != Member::arguments) return Outcome::more;
  if (first != '{' && first != '"' && first != 'n') return failed();
  encoded_arguments_ = first != '{';
  if (tool_ != nullptr) begin_now(events);
  return Outcome::more;
}

void CallReader::take_value(std::string_view part, EventWriter& events) {
  switch (member_) {
    case Member::name:
    case Member::id: token_ += part; break;
    case Member::arguments:
      if (begun_ && !encoded_arguments_) {
        events.arguments(call_, part);
      } else {
        held_arguments_ += part;
      }
      break;
    case Member::other: break;
  }
}

Outcome CallReader::end_value(EventWriter& events) {
  at_ = At::after_member;
  switch (member_) {
    case Member::name:
      tool_ = find_tool(json_unquoted(token_).value_or(""));
      if (tool_ == nullptr) return failed();
      if (!have_arguments_) return Outcome::more;
      begin_now(events);
      events.arguments(call_, held_arguments_);
      return Outcome::more;
    case Member::id: id_ = json_unquoted(token_).value_or(token_); return Outcome::more;
    case Member::arguments: return end_arguments(events);
    case Member::other: break;
  }
  return Outcome::more;
}

Outcome CallReader::end_arguments(EventWriter& events) {
  have_arguments_ = true;
  if (!encoded_arguments_) return Outcome::more;
  // Either null, or a JSON string that contains the object.
  const std::string decoded = json_unquoted(held_arguments_).value_or("");
  const std::string_view object = trimmed(decoded);
  if (object.empty()) {
    held_arguments_ = "{}";
  } else if (object.front() == '{' && is_json(object)) {
    held_arguments_ = object;
  } else {
    return failed();
  }
  if (begun_) events.arguments(call_, held_arguments_);
  return Outcome::more;
}

Outcome CallReader::after_member(ByteQueue& bytes, EventWriter& events) {
  bytes.skip_blanks();
  if (bytes.rest().empty()) return Outcome::more;
  const char byte = bytes.rest().front();
  if (byte != ',' && byte != '}') return failed();
  bytes.read(1);
  if (byte == '}') return end_object(events);
  at_ = At::member;
  return Outcome::more;
}

Outcome CallReader::end_object(EventWriter& events) {
  if (tool_ == nullptr) return failed();
  begin_now(events);
  if (!have_arguments_) events.arguments(call_, "{}");
  return Outcome::done;
}

// Reads the arguments alone, after a header with the name.
Outcome CallReader::arguments(ByteQueue& bytes, EventWriter& events) {
  if (!value_started_) {
    bytes.skip_blanks();
    if (bytes.rest().empty()) return Outcome::more;
    const char first = bytes.rest().front();
    if (first != '{' && first != '"') {
      const std::string_view closer = trimmed(format_.calls.call_close);
      const Match match = closer.empty() ? Match{} : match_marker(closer, bytes.rest());
      if (match.kind == MatchKind::partial && !bytes.at_end()) return Outcome::more;
      if (match.kind != MatchKind::full) return Outcome::broken;
      events.arguments(call_, "{}");
      return Outcome::done;
    }
    member_ = Member::arguments;
    const Outcome outcome = begin_value(first, events);
    if (outcome != Outcome::more) return outcome;
  }
  const Outcome outcome = value(bytes, events);
  return outcome == Outcome::more && at_ == At::after_member ? Outcome::done : outcome;
}

}  // namespace stemma::dialect
