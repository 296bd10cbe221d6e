// AnswerParser: splits the bytes that a model samples into content, thinking and tool calls, as
// they arrive.
//
//   text ──opener──▶ thinking ──closer──▶ text ──call opener──▶ call ──closer──▶ text ...
//
// One parser reads one answer. It is driven by a Format and knows no model. Each byte is read once:
// text that may begin a marker is held back, and released as content if it turns out not to be a
// marker. Text that cannot be parsed is content too: a call of a tool that was not offered, a
// marker followed by something unexpected, JSON that breaks before the call's name. If the
// arguments of an announced call break, the call ends with complete = false, and what follows is
// content. Only markers themselves and blanks beside them are dropped.
//
// Invariant:  the message that the events add up to depends only on the bytes, not on how they were
//             cut. An event has whole characters, except for bytes that are not UTF-8. The events
//             contain the whole answer, except markers, blanks beside them, and the last argument
//             of a call that was cut off.
// Threading:  one thread at a time.
// Ownership:  the Format must outlive the parser; tools are copied.
// Cost:       O(bytes), about 0.15 us a token. It holds at most kMostHeldBytes, or kMostValueBytes
//             for an argument that is JSON in a string, or a non-text argument in tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_events.h"
#include "dialect/call_reader.h"
#include "dialect/format.h"
#include "dialect/values/schema_types.h"

namespace stemma::dialect {

// Where an answer begins.
enum class AnswerStart : uint8_t {
  text,
  thinking,  // The prompt has opened thinking.
  header,    // The prompt has opened a channel's header.
};
// Finds it from the end of the prompt.
AnswerStart answer_start(const Format& format, std::string_view prompt);

enum class AnswerEnd : uint8_t {
  stop,    // The model ended its turn, or a stop text was found.
  length,  // The answer reached its length limit.
};

class AnswerParser {
 public:
  // Without tools, the parser does not look for calls.
  AnswerParser(const Format& format, std::vector<Tool> tools, AnswerStart start);
  AnswerParser(const AnswerParser&) = delete;
  AnswerParser& operator=(const AnswerParser&) = delete;

  // Appends the events that follow from the bytes.
  void feed(std::string_view bytes, std::vector<Event>& events);
  // Ends the answer. The parser must not be used afterwards.
  void finish(AnswerEnd end, std::vector<Event>& events);

  uint32_t calls() const noexcept { return calls_; }
  // Bytes that wait for a decision.
  size_t held_bytes() const noexcept { return bytes_.held(); }

 private:
  enum class State : uint8_t {
    text,      // Content, or the text of a channel that is content.
    thinking,  // Up to the closer.
    section,   // Between calls, inside the markers around all of them.
    call,
    tail,    // After a call's arguments, before its closing marker.
    header,  // Of a channel.
  };
  enum class Role : uint8_t {
    thinking_open,
    thinking_close,
    dropped,  // Markers around content, and texts that mean nothing.
    section_open,
    call_open,
    bare_call,  // The brace of an object that may be a call.
    channel_open,
    channel_close
  };
  // Each returns whether it made progress; false: it needs more bytes.
  bool step();
  bool text_step();
  bool marker_step(Role role, size_t size);
  bool section_step();
  bool tail_step();
  bool call_step();
  bool header_step();
  bool enter_channel(std::string_view header);

  void collect_markers();
  bool at_line_start() const noexcept;
  void say(std::string_view bytes);
  void resume_text(bool after_marker);
  bool release_held_text();
  void enter(State state);
  void begin_call(bool strict);
  void leave_call(bool complete);

  const Format& format_;
  const std::vector<Tool> tools_;
  EventWriter events_;
  ByteQueue bytes_;
  CallReader reader_;
  State state_ = State::text;
  std::vector<std::string_view> marker_texts_;  // Markers that are valid now.
  std::vector<Role> marker_roles_;
  std::string blanks_;         // The end of the text so far; at most kMostBlanks.
  bool after_marker_ = false;  // Blanks here belong to the marker before them.
  bool fresh_ = true;          // No text since the beginning, since thinking, or since a call.
  bool line_start_ = true;     // The last byte passed on was a newline, or there was none.
  bool list_closed_ = false;
  bool section_comma_ = false;  // A bracket or comma was read, and no call after it.
  uint32_t calls_ = 0;
  uint32_t calls_in_section_ = 0;
};

}  // namespace stemma::dialect
