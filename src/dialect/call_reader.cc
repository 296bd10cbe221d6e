#include "dialect/call_reader.h"

#include "dialect/marker.h"

namespace stemma::dialect {

using Outcome = CallReader::Outcome;

namespace {

constexpr size_t kMostFieldBytes = 1024;  // Limit of an id, a key or a type.

}  // namespace

void CallReader::begin(uint32_t call, bool strict) {
  call_ = call;
  strict_ = strict;
  begun_ = false;
  at_ = format_.calls.shape == CallShape::json ? At::object : At::header;
  tool_ = nullptr;
  id_.clear();
  piece_ = 0;
  have_arguments_ = false;
  value_started_ = false;
  held_arguments_.clear();
  encoded_arguments_ = false;
  arguments_told_ = 0;
}

void CallReader::begin_arguments(uint32_t call, const Tool& tool, EventWriter& events) {
  begin(call, false);
  tool_ = &tool;
  at_ = At::arguments;
  begin_now(events);
}

void CallReader::begin_now(EventWriter& events) {
  if (begun_) return;
  begun_ = true;
  events.begin_call(call_, tool_->name);
}

const Tool* CallReader::find_tool(std::string_view name) const {
  for (const Tool& tool : tools_) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

Outcome CallReader::read(ByteQueue& bytes, EventWriter& events) {
  for (;;) {
    bytes.limit = at_ == At::tag_value ? kMostValueBytes : kMostHeldBytes;
    const At at_before = at_;
    const size_t piece_before = piece_;
    const size_t left_before = bytes.all().size();
    const Outcome outcome = step(bytes, events);
    if (begun_ && at_ != At::tag_value) bytes.commit();
    if (outcome != Outcome::more) return outcome;
    const bool moved =
        at_ != at_before || piece_ != piece_before || bytes.all().size() != left_before;
    if (moved) continue;
    return bytes.full() ? failed() : Outcome::more;
  }
}

Outcome CallReader::step(ByteQueue& bytes, EventWriter& events) {
  switch (at_) {
    case At::object: return object(bytes);
    case At::member: return member(bytes, events);
    case At::colon:
    case At::value: return value(bytes, events);
    case At::after_member: return after_member(bytes, events);
    case At::header: return header(bytes, events);
    case At::arguments: return arguments(bytes, events);
    case At::literals: return literals(bytes, events);
    case At::tags: return tags(bytes, events);
    case At::tag: return tag(bytes);
    case At::tag_value: return tag_value(bytes, events);
  }
  return failed();
}

Outcome CallReader::header(ByteQueue& bytes, EventWriter& events) {
  const std::vector<Piece>& pieces = format_.calls.header;
  if (piece_ < pieces.size()) {
    const Piece* next = piece_ + 1 < pieces.size() ? &pieces[piece_ + 1] : nullptr;
    return piece(pieces[piece_], next, bytes);
  }
  if (tool_ == nullptr) return failed();
  begin_now(events);
  switch (format_.calls.shape) {
    case CallShape::named_json: at_ = At::arguments; break;
    case CallShape::tagged: at_ = At::tags; break;
    case CallShape::literals:
      literal_ = LiteralReader(format_.calls.quote);
      at_ = At::literals;
      break;
    case CallShape::python:
      literal_ = LiteralReader({}, true);
      at_ = At::literals;
      break;
    default: return Outcome::broken;
  }
  return Outcome::more;
}

// Moves piece_ on once the piece was read.
Outcome CallReader::piece(const Piece& piece, const Piece* next, ByteQueue& bytes) {
  switch (piece.kind) {
    case PieceKind::text: {
      const std::string_view marker = trimmed(piece.text);
      if (!marker.empty()) {
        bytes.skip_blanks();
        const Match match = match_marker(marker, bytes.rest());
        if (match.kind == MatchKind::no) return failed();
        if (match.kind == MatchKind::partial) return bytes.at_end() ? failed() : Outcome::more;
        bytes.read(match.bytes);
      }
      ++piece_;
      return Outcome::more;
    }
    case PieceKind::name: return name(bytes);
    case PieceKind::number: return digits(bytes);
    case PieceKind::id: return until(next, bytes, id_);
    case PieceKind::key: return until(next, bytes, key_);
    case PieceKind::type: return until(next, bytes, type_);
  }
  return failed();
}

// Reads the longest tool name that fits here.
Outcome CallReader::name(ByteQueue& bytes) {
  bytes.skip_blanks();
  const std::string_view text = bytes.rest();
  const Tool* best = nullptr;
  for (const Tool& tool : tools_) {
    const std::string_view known = tool.name;
    if (known.empty()) continue;
    if (text.size() < known.size()) {
      if (known.substr(0, text.size()) == text && !bytes.at_end()) return Outcome::more;
    } else if (text.substr(0, known.size()) == known) {
      if (best == nullptr || known.size() > best->name.size()) best = &tool;
    }
  }
  if (best == nullptr) return failed();
  if (tool_ != nullptr && tool_ != best) return failed();  // The header names two tools.
  tool_ = best;
  bytes.read(best->name.size());
  ++piece_;
  return Outcome::more;
}

Outcome CallReader::digits(ByteQueue& bytes) {
  const std::string_view text = bytes.rest().substr(0, 20);
  size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  if (count == 0 && !text.empty()) return failed();
  if (count == text.size() && !bytes.at_end()) return text.size() < 20 ? Outcome::more : failed();
  bytes.read(count);
  ++piece_;
  return Outcome::more;
}

// Reads a field that lasts until the next text of the header.
Outcome CallReader::until(const Piece* next, ByteQueue& bytes, std::string& out) {
  const std::string_view closer = next == nullptr ? std::string_view() : trimmed(next->text);
  const std::string_view text = bytes.rest();
  for (size_t end = 0; end < text.size(); ++end) {
    if (end > kMostFieldBytes) return failed();
    if (closer.empty() ? !is_blank(text[end]) : text[end] != closer.front()) continue;
    const Match match = match_marker(closer, text.substr(end));
    if (match.kind == MatchKind::no) continue;
    if (match.kind == MatchKind::partial) return bytes.at_end() ? failed() : Outcome::more;
    out = trimmed(text.substr(0, end));
    bytes.read(end);
    ++piece_;
    return Outcome::more;
  }
  return bytes.at_end() ? failed() : Outcome::more;
}

Outcome CallReader::literals(ByteQueue& bytes, EventWriter& events) {
  if (!value_started_ && format_.calls.shape == CallShape::literals) {
    bytes.skip_blanks();
    if (bytes.rest().empty()) return Outcome::more;
    if (bytes.rest().front() != '{') return Outcome::broken;
    value_started_ = true;
  }
  std::string out;
  size_t at = 0;
  const LiteralReader::Verdict verdict = literal_.read(bytes.rest(), at, bytes.at_end(), out);
  bytes.read(at);
  events.arguments(call_, out);
  if (verdict == LiteralReader::Verdict::bad) return Outcome::broken;
  return verdict == LiteralReader::Verdict::done ? Outcome::done : Outcome::more;
}

void CallReader::finish(ByteQueue& bytes, EventWriter& events) {
  if (!begun_ || at_ != At::tag_value || !value_opened_) return;
  // Emit the rest of a text that was cut off, without a possible beginning of its closing tag.
  if (value_type_ != ArgumentType::text) tell_key(events);
  const std::string_view closers[] = {value_closer_};
  const std::string_view text = bytes.all();
  const size_t end = find_marker(closers, text, false).position;
  std::string escaped;
  append_json_escaped(escaped, text.substr(0, end));
  events.arguments(call_, value_type_ == ArgumentType::text ? escaped : "\"" + escaped);
}

}  // namespace stemma::dialect
