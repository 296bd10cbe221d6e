#include "dialect/answer_parser.h"

#include <utility>

#include "dialect/marker.h"

namespace stemma::dialect {

namespace {

constexpr size_t kMostHeaderBytes = 1024;

bool ends_with_marker(std::string_view prompt, std::string_view marker) {
  marker = trimmed(marker);
  prompt = trimmed(prompt);
  return !marker.empty() && prompt.size() >= marker.size() &&
         prompt.substr(prompt.size() - marker.size()) == marker;
}

bool has_one_of(std::string_view text, const std::vector<std::string>& all) {
  for (const std::string& one : all) {
    if (text.find(one) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

AnswerStart answer_start(const Format& format, std::string_view prompt) {
  if (ends_with_marker(prompt, format.thinking.opener)) return AnswerStart::thinking;
  if (ends_with_marker(prompt, format.channels.opener)) return AnswerStart::header;
  return AnswerStart::text;
}

AnswerParser::AnswerParser(const Format& format, std::vector<Tool> tools, AnswerStart start)
    : format_(format), tools_(std::move(tools)), reader_(format_, tools_) {
  if (start == AnswerStart::thinking) {
    enter(State::thinking);
  } else if (start == AnswerStart::header) {
    enter(State::header);
  } else {
    collect_markers();
  }
}

void AnswerParser::feed(std::string_view bytes, std::vector<Event>& events) {
  events_.write_to(events);
  bytes_.add(bytes);
  while (step()) {
  }
  bytes_.compact();
}

void AnswerParser::finish(AnswerEnd end, std::vector<Event>& events) {
  events_.write_to(events);
  bytes_.final = true;
  while (step()) {
  }
  if (state_ == State::call && reader_.begun()) {
    const bool whole = end == AnswerEnd::stop && reader_.between_arguments();
    if (whole) {
      reader_.close_arguments(events_);
    } else {
      reader_.finish(bytes_, events_);
    }
    leave_call(whole);
  } else if (state_ != State::text && state_ != State::thinking) {
    resume_text(!release_held_text());
    while (step()) {
    }
  }
  if (!after_marker_) {
    const std::string blanks = std::exchange(blanks_, {});
    state_ == State::thinking ? events_.reasoning(blanks) : events_.content(blanks);
  }
  events_.finish();
}

bool AnswerParser::step() {
  switch (state_) {
    case State::text:
    case State::thinking: return text_step();
    case State::section: return section_step();
    case State::call: return call_step();
    case State::tail: return tail_step();
    case State::header: return header_step();
  }
  return false;
}

void AnswerParser::enter(State state) {
  state_ = state;
  blanks_.clear();
  after_marker_ = true;
  line_start_ = true;
  bytes_.limit = kMostHeldBytes;
  collect_markers();
}

// Collects the markers that mean something in text or thinking.
void AnswerParser::collect_markers() {
  marker_texts_.clear();
  marker_roles_.clear();
  const auto add = [this](std::string_view text, Role role) {
    text = trimmed(text);
    if (text.empty()) return;
    marker_texts_.push_back(text);
    marker_roles_.push_back(role);
  };
  const bool channels = !format_.channels.opener.empty();
  if (channels) {
    add(format_.channels.opener, Role::channel_open);
    for (const std::string& closer : format_.channels.closers) add(closer, Role::channel_close);
  }
  if (state_ == State::thinking) {
    add(format_.thinking.closer, Role::thinking_close);
    return;
  }
  if (fresh_) {
    add(format_.thinking.opener, Role::thinking_open);
    add(format_.thinking.closer, Role::dropped);  // A thinking closer without an opener.
  }
  add(format_.content_open, Role::dropped);
  add(format_.content_close, Role::dropped);
  const Calls& calls = format_.calls;
  if (tools_.empty() || calls.shape == CallShape::none) return;
  for (const std::string& open : calls.optional_opens) add(open, Role::dropped);
  if (!calls.section_open.empty()) {
    add(calls.section_open, Role::section_open);
  } else if (!calls.call_open.empty()) {
    add(calls.call_open, Role::call_open);
  } else if (calls.shape == CallShape::json) {
    add("{", Role::bare_call);
  }
}

bool AnswerParser::at_line_start() const noexcept {
  return line_start_ || blanks_.find('\n') != std::string::npos;
}

// Emits text. Blanks wait, because blanks before a marker belong to the marker.
void AnswerParser::say(std::string_view bytes) {
  if (bytes.empty()) return;
  if (after_marker_) {
    while (!bytes.empty() && is_blank(bytes.front())) bytes.remove_prefix(1);
    if (bytes.empty()) return;
    after_marker_ = false;
  }
  const auto tell = [this](std::string_view text) {
    if (text.empty()) return;
    line_start_ = text.back() == '\n';
    state_ == State::thinking ? events_.reasoning(text) : events_.content(text);
  };
  size_t end = bytes.size();
  while (end > 0 && is_blank(bytes[end - 1])) --end;
  if (end > 0) {
    tell(std::exchange(blanks_, {}));
    tell(bytes.substr(0, end));
    if (std::exchange(fresh_, false)) collect_markers();
  }
  blanks_ += bytes.substr(end);
  if (blanks_.size() > kMostBlanks) {
    const size_t old = blanks_.size() - kMostBlanks;
    tell(std::string_view(blanks_).substr(0, old));
    blanks_.erase(0, old);
  }
}

bool AnswerParser::text_step() {
  const std::string_view text = bytes_.all();
  if (text.empty()) return false;
  const FoundMarker found = find_marker(marker_texts_, text, bytes_.final);
  // Only up to the first byte that is not blank: after it other markers may count.
  size_t size = found.position;
  if (fresh_) {
    size_t first = 0;
    while (first < size && is_blank(text[first])) ++first;
    if (first < size) size = first + 1;
  }
  if (size > 0) {
    say(text.substr(0, size));
    bytes_.read(size);
    bytes_.commit();
    return true;
  }
  if (found.marker == kNoMarker) return false;
  return marker_step(marker_roles_[found.marker], found.bytes);
}

// Handles a marker at the front of the queue. What it begins is held until we know whether it
// really is that.
bool AnswerParser::marker_step(Role role, size_t size) {
  if (role == Role::bare_call) {
    if (!at_line_start()) {
      say(bytes_.all().substr(0, size));
      bytes_.read(size);
      bytes_.commit();
      return true;
    }
    begin_call(true);  // The brace is part of the call.
    return true;
  }
  bytes_.read(size);
  switch (role) {
    case Role::thinking_open:
      bytes_.commit();
      enter(State::thinking);
      break;
    case Role::thinking_close:
      bytes_.commit();
      fresh_ = true;
      enter(State::text);
      break;
    case Role::dropped:
      bytes_.commit();
      blanks_.clear();
      after_marker_ = true;
      line_start_ = true;
      break;
    case Role::section_open:
      state_ = State::section;
      calls_in_section_ = 0;
      list_closed_ = false;
      section_comma_ = false;
      break;
    case Role::call_open: begin_call(false); break;
    case Role::channel_open: state_ = State::header; break;
    case Role::channel_close:
      bytes_.commit();
      fresh_ = true;
      enter(State::text);
      break;
    case Role::bare_call: break;
  }
  return true;
}

void AnswerParser::begin_call(bool strict) {
  state_ = State::call;
  section_comma_ = false;
  reader_.begin(calls_, strict);
}

void AnswerParser::leave_call(bool complete) {
  events_.end_call(calls_, reader_.id(), complete);
  ++calls_;
  fresh_ = true;
  blanks_.clear();
}

// The held bytes were not a call, so they are content. Returns whether there were any.
bool AnswerParser::release_held_text() {
  const std::string held(bytes_.held_text());
  bytes_.commit();
  // Between and after the calls of a section, blanks mean nothing.
  const bool blank = trimmed(held).empty();
  if (held.empty() || (state_ == State::section && calls_in_section_ > 0 && blank)) return false;
  const std::string text = std::exchange(blanks_, {}) + held;
  events_.content(text);
  line_start_ = text.back() == '\n';
  fresh_ = false;
  return true;
}

void AnswerParser::resume_text(bool after_marker) {
  state_ = State::text;
  after_marker_ = after_marker;
  bytes_.limit = kMostHeldBytes;
  collect_markers();
}

bool AnswerParser::call_step() {
  switch (reader_.read(bytes_, events_)) {
    case CallReader::Outcome::more: return false;
    case CallReader::Outcome::refused: resume_text(!release_held_text()); return true;
    case CallReader::Outcome::broken:
      leave_call(false);
      fresh_ = false;
      line_start_ = false;
      resume_text(false);
      return true;
    case CallReader::Outcome::done: break;
  }
  bytes_.commit();
  leave_call(true);
  ++calls_in_section_;
  state_ = State::tail;
  bytes_.limit = kMostHeldBytes;
  return true;
}

bool AnswerParser::tail_step() {
  const std::string_view closer = trimmed(format_.calls.call_close);
  const State next = format_.calls.section_open.empty() ? State::text : State::section;
  if (!closer.empty() && format_.calls.shape != CallShape::none) {
    bytes_.skip_blanks();
    bytes_.commit();
    const Match match = match_marker(closer, bytes_.rest());
    if (match.kind == MatchKind::partial && !bytes_.at_end()) return false;
    if (match.kind == MatchKind::full) {
      bytes_.read(match.bytes);
      bytes_.commit();
    }
  }
  enter(next);
  return true;
}

bool AnswerParser::section_step() {
  const Calls& calls = format_.calls;
  bytes_.skip_blanks();
  const std::string_view text = bytes_.rest();
  if (text.empty()) return false;
  const Match close =
      calls.section_close.empty() ? Match{} : match_marker(trimmed(calls.section_close), text);
  if (close.kind == MatchKind::full && calls_in_section_ > 0) {
    bytes_.read(close.bytes);
    bytes_.commit();
    enter(State::text);
    return true;
  }
  const std::string_view open = trimmed(calls.call_open);
  const Match call = open.empty() ? Match{} : match_marker(open, text);
  if (call.kind == MatchKind::full && !list_closed_) {
    bytes_.read(call.bytes);
    begin_call(false);
    return true;
  }
  const bool partial = close.kind == MatchKind::partial || call.kind == MatchKind::partial;
  if (partial && !bytes_.at_end()) return false;
  const char byte = text.front();
  if (calls.list && !list_closed_ && calls_in_section_ > 0 && byte == ']') {
    bytes_.read(1);
    bytes_.commit();
    list_closed_ = true;
    if (calls.section_close.empty()) enter(State::text);
    return true;
  }
  if (calls.list && !list_closed_ && byte == (calls_in_section_ == 0 ? '[' : ',') &&
      !section_comma_) {
    bytes_.read(1);
    section_comma_ = true;
    return true;
  }
  const bool may_begin = calls.shape != CallShape::json || byte == '{';
  if (open.empty() && may_begin && !list_closed_ && (!calls.list || section_comma_)) {
    begin_call(false);
    return true;
  }
  resume_text(!release_held_text());
  return true;
}

bool AnswerParser::header_step() {
  const std::string_view text = bytes_.rest();
  const std::string_view close = format_.channels.header_close;
  const size_t end = text.substr(0, kMostHeaderBytes).find(close);
  if (end == std::string_view::npos) {
    if (text.size() < kMostHeaderBytes && !bytes_.at_end()) return false;
    if (text.empty() && bytes_.held_text().empty()) return false;
    resume_text(!release_held_text());
    return true;
  }
  const std::string header(text.substr(0, end));
  bytes_.read(end + close.size());
  if (!enter_channel(header)) resume_text(!release_held_text());
  return true;
}

// Continues with the channel that the header announces. Returns false if it is none that we know.
bool AnswerParser::enter_channel(std::string_view header) {
  const Channels& channels = format_.channels;
  if (channels.calls_in_header) {
    const size_t mark = header.find(channels.call_mark);
    if (mark != std::string_view::npos) {
      const std::string_view name = header.substr(mark + channels.call_mark.size());
      const std::string_view alone = name.substr(0, name.find_first_of(" <\t\r\n"));
      for (const Tool& tool : tools_) {
        if (tool.name != alone) continue;
        bytes_.commit();
        blanks_.clear();
        state_ = State::call;
        reader_.begin_arguments(calls_, tool, events_);
        return true;
      }
      if (!channels.call_mark.empty()) return false;
    }
  }
  const bool thinks = has_one_of(header, channels.thinking_headers);
  if (!thinks && !channels.content_headers.empty()) {
    bool known = false;
    for (const std::string& name : channels.content_headers) known |= trimmed(header) == name;
    if (!known) return false;
  }
  bytes_.commit();
  fresh_ = true;
  enter(thinks ? State::thinking : State::text);
  return true;
}

}  // namespace stemma::dialect
