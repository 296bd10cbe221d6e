// CallReader: reads one tool call, from after its opener to the end of its arguments.
//
//   nothing known ──name and header read──▶ begun ──arguments whole──▶ done
//         '── not a call ──▶ refused           '── cannot be read ──▶ broken
//
// Before `begun` it writes no events and the bytes stay in the queue, so that they can become
// content.
//
// Threading:  one thread at a time.
// Ownership:  format and tools must outlive it.
// Cost:       O(bytes).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dialect/answer_events.h"
#include "dialect/format.h"
#include "dialect/values/json_text.h"
#include "dialect/values/literal_reader.h"
#include "dialect/values/schema_types.h"

namespace stemma::dialect {

inline constexpr size_t kMostHeldBytes = size_t{64} << 10U;
inline constexpr size_t kMostValueBytes = size_t{4} << 20U;
inline constexpr size_t kMostBlanks = 256;

// Bytes that arrived: [mark, at) were read and can still become content, [at, end) were not read.
class ByteQueue {
 public:
  void add(std::string_view bytes) { bytes_.append(bytes); }
  std::string_view all() const noexcept { return std::string_view(bytes_).substr(at_); }
  // The bytes that may be read: at most `limit` bytes are held. So decisions see the same bytes,
  // however these arrive.
  std::string_view rest() const noexcept {
    const size_t end = std::min(bytes_.size(), mark_ + limit);
    return std::string_view(bytes_).substr(at_, end - at_);
  }
  // Whether the queue holds all that may be read: waiting for more does not help.
  bool full() const noexcept { return bytes_.size() >= mark_ + limit; }
  bool at_end() const noexcept { return final && bytes_.size() <= mark_ + limit; }
  std::string_view held_text() const noexcept {
    return std::string_view(bytes_).substr(mark_, at_ - mark_);
  }
  size_t held() const noexcept { return bytes_.size() - mark_; }
  void read(size_t count) noexcept { at_ += count; }
  void commit() noexcept { mark_ = at_; }
  void compact() {
    bytes_.erase(0, mark_);
    at_ -= mark_;
    mark_ = 0;
  }
  void skip_blanks() noexcept {
    const std::string_view text = rest();
    size_t blanks = 0;
    while (blanks < text.size() && is_blank(text[blanks])) ++blanks;
    at_ += blanks;
  }

  bool final = false;  // Nothing follows.
  size_t limit = kMostHeldBytes;

 private:
  std::string bytes_;
  size_t mark_ = 0;
  size_t at_ = 0;
};

class CallReader {
 public:
  enum class Outcome : uint8_t { more, done, refused, broken };

  CallReader(const Format& format, std::span<const Tool> tools) : format_(format), tools_(tools) {}

  // A new call. `strict`: an object with members that calls do not have is refused.
  void begin(uint32_t call, bool strict);
  // A new call with a known name; its arguments follow, as JSON.
  void begin_arguments(uint32_t call, const Tool& tool, EventWriter& events);
  Outcome read(ByteQueue& bytes, EventWriter& events);
  // The answer ends here: passes on the rest of the arguments.
  void finish(ByteQueue& bytes, EventWriter& events);

  bool begun() const noexcept { return begun_; }
  const std::string& id() const noexcept { return id_; }
  // Whether only the closing marker is missing. close_arguments() then ends the call without it.
  bool between_arguments() const noexcept { return begun_ && at_ == At::tags; }
  void close_arguments(EventWriter& events);

 private:
  enum class At : uint8_t {
    object,
    member,
    colon,
    value,
    after_member,
    header,
    arguments,
    literals,
    tags,
    tag,
    tag_value
  };
  enum class Member : uint8_t { name, arguments, id, other };

  Outcome step(ByteQueue& bytes, EventWriter& events);
  Outcome failed() const noexcept { return begun_ ? Outcome::broken : Outcome::refused; }
  void begin_now(EventWriter& events);
  const Tool* find_tool(std::string_view name) const;

  // call_reader_json.cc
  Outcome object(ByteQueue& bytes);
  Outcome member(ByteQueue& bytes, EventWriter& events);
  Outcome choose_member(std::string_view key);
  Outcome value(ByteQueue& bytes, EventWriter& events);
  Outcome begin_value(char first, EventWriter& events);
  void take_value(std::string_view part, EventWriter& events);
  size_t value_room() const noexcept;
  Outcome end_value(EventWriter& events);
  Outcome end_arguments(EventWriter& events);
  Outcome after_member(ByteQueue& bytes, EventWriter& events);
  Outcome end_object(EventWriter& events);
  Outcome arguments(ByteQueue& bytes, EventWriter& events);

  // call_reader.cc
  Outcome header(ByteQueue& bytes, EventWriter& events);
  Outcome piece(const Piece& piece, const Piece* next, ByteQueue& bytes);
  Outcome name(ByteQueue& bytes);
  Outcome digits(ByteQueue& bytes);
  Outcome until(const Piece* next, ByteQueue& bytes, std::string& out);
  Outcome literals(ByteQueue& bytes, EventWriter& events);

  // call_reader_tags.cc
  Outcome tags(ByteQueue& bytes, EventWriter& events);
  Outcome tag(ByteQueue& bytes);
  Outcome tag_value(ByteQueue& bytes, EventWriter& events);
  bool open_tag_value(ByteQueue& bytes, EventWriter& events);
  void tell_text(ByteQueue& bytes, size_t count, EventWriter& events);
  void end_tag_value(std::string_view written, EventWriter& events);
  void tell_key(EventWriter& events);
  // What follows a value or the header: another argument, the end of the call, or neither.
  enum class Next : uint8_t { argument, call_end, neither, unknown };
  Next next_in_tags(std::string_view text, bool final) const;

  const Format& format_;
  std::span<const Tool> tools_;
  uint32_t call_ = 0;
  bool strict_ = false;
  bool begun_ = false;
  At at_ = At::object;
  const Tool* tool_ = nullptr;
  std::string id_;
  size_t piece_ = 0;
  // json
  Member member_ = Member::other;
  JsonScanner scanner_;
  bool value_started_ = false;
  std::string token_;  // A name or id that is being read.
  bool have_arguments_ = false;
  std::string held_arguments_;      // Arguments that cannot be passed on yet.
  bool encoded_arguments_ = false;  // They are JSON in a JSON string.
  // literals
  LiteralReader literal_;
  // tagged
  std::string key_;
  std::string type_;
  std::string value_closer_;
  ArgumentType value_type_ = ArgumentType::unknown;
  bool value_opened_ = false;  // Its first bytes were checked.
  bool in_character_data_ = false;
  size_t scanned_ = 0;  // Bytes of the value in which no closer begins.
  uint32_t arguments_told_ = 0;
};

}  // namespace stemma::dialect
