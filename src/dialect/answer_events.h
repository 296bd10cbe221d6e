// The events of an answer parser, and the message that they add up to.
//
// Threading:  plain values; an EventWriter one thread at a time.
// Cost:       one event for each run of bytes of one kind in a feed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::dialect {

enum class EventKind : uint8_t {
  content,     // `text` continues the answer's text.
  reasoning,   // `text` continues its thinking.
  call_begin,  // Call number `call` begins; `text` is its tool's name.
  arguments,   // `text` continues the JSON of the call's arguments.
  call_end,    // The call ended. `text` is the id that the model wrote, if any.
};

struct Event {
  EventKind kind = EventKind::content;
  uint32_t call = 0;
  std::string text = {};
  bool complete = true;  // call_end: false if the call was cut off or cannot be read to its end.

  bool operator==(const Event&) const = default;
};

struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON; only its beginning if not complete.
  std::string id;         // As the model wrote it; usually empty.
  bool complete = false;

  bool operator==(const ParsedCall&) const = default;
};

struct ParsedMessage {
  std::string content;
  std::string reasoning;
  std::vector<ParsedCall> calls;

  void add(const Event& event);
  bool operator==(const ParsedMessage&) const = default;
};

// Collects events: joins neighbours of one kind, and keeps characters whole.
class EventWriter {
 public:
  // Events go to `out` until the next call.
  void write_to(std::vector<Event>& out) { out_ = &out; }

  void content(std::string_view bytes) { add(EventKind::content, 0, bytes); }
  void reasoning(std::string_view bytes) { add(EventKind::reasoning, 0, bytes); }
  void arguments(uint32_t call, std::string_view bytes) { add(EventKind::arguments, call, bytes); }
  void begin_call(uint32_t call, std::string_view name);
  void end_call(uint32_t call, std::string_view id, bool complete);
  // The answer ends here: an unfinished character is passed on as it is.
  void finish();

 private:
  void add(EventKind kind, uint32_t call, std::string_view bytes);
  void put(EventKind kind, uint32_t call, std::string_view bytes);

  std::vector<Event>* out_ = nullptr;
  std::string part_;  // The beginning of a character, at most 3 bytes.
  EventKind part_kind_ = EventKind::content;
  uint32_t part_call_ = 0;
};

}  // namespace stemma::dialect
