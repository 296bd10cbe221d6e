// ReplyParser turns the bytes of a Redis or Valkey server into replies, one at a time, in pieces of
// any size. It knows RESP2 and the sized types of RESP3.
//
// Nothing in a reply is trusted: lengths, counts and depth have limits, a count reserves no memory,
// and anything that is not exactly RESP fails. A failed parser stays failed: it no longer knows
// where the next reply begins, so the connection is useless.
//
//   ready --first byte--> inside --last byte--> done --take next--> ready
//                           |'-- a bulk string that the caller wants --> bulk --end_bulk()--> inside
//                           '--- anything wrong --> failed
//
// Stage `bulk` avoids copying a value: the parser reads its length and stops; the caller moves that
// many bytes from the connection to where they belong, then feeds the parser what follows.
//
// Threading:  one thread at a time.
// Cost:       each byte is read a constant number of times; an uncut line is not copied twice;
//             numbers and short texts allocate nothing once the buffers have grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::tier::redis {

struct ReplyLimits {
  size_t line_bytes = size_t{4} << 10;  // Of a simple string, an error, a number.
  size_t text_bytes = size_t{4} << 20;  // Of all texts of one reply together.
  size_t elements = size_t{1} << 17;    // Of all arrays of one reply together.
  size_t depth = 8;                     // Of arrays in arrays.
  // Of a bulk string that the caller takes. More than a server keeps under one key: the caller
  // skips what is too large for it, and the connection stays good.
  uint64_t bulk_bytes = uint64_t{4} << 30;
};

struct Reply {
  // `array` is every aggregate: arrays, sets, maps (keys and values in turn).
  enum class Type : uint8_t { null, text, error, integer, array, push };

  Type type = Type::null;
  int64_t integer = 0;
  std::string text;  // Of `text` and `error`.
  std::vector<Reply> elements;

  bool is_text(std::string_view wanted) const { return type == Type::text && text == wanted; }
};

class ReplyParser {
 public:
  enum class Stage : uint8_t { ready, inside, bulk, done, failed };

  explicit ReplyParser(const ReplyLimits& limits = {}) : limits_(limits) {}

  // Call before the first byte of a reply: whether to stop at `bulk` if the whole reply is a bulk
  // string.
  void want_bulk(bool wanted) noexcept { want_bulk_ = wanted; }

  // Takes bytes up to the end of one reply or the start of a wanted bulk string, and returns how
  // many. After `done`, a call begins the next reply.
  size_t feed(std::string_view bytes);

  Stage stage() const noexcept { return stage_; }
  // How many bytes the caller must take. Requires `bulk`.
  uint64_t bulk_bytes() const noexcept { return bulk_bytes_; }
  // The caller has taken them. Requires `bulk`.
  void end_bulk() noexcept;

  // Valid until the next feed(). For a wanted bulk string, an empty text. Requires `done`.
  const Reply& reply() const noexcept { return root_; }
  // What was wrong, after a failure.
  const char* problem() const noexcept { return problem_; }

 private:
  enum class Part : uint8_t { type, line, body, body_end };
  struct Open {
    Reply* array;
    uint64_t left;
  };

  void fail(const char* problem) noexcept {
    stage_ = Stage::failed;
    problem_ = problem;
  }
  void begin() noexcept;
  bool read_line(std::string_view line);
  bool read_aggregate(int64_t count, Reply::Type type, int64_t each);
  bool read_bulk(int64_t bytes, Reply::Type type);
  bool add_text(size_t bytes);
  void value_is_whole();

  ReplyLimits limits_;
  Stage stage_ = Stage::ready;
  Part part_ = Part::type;
  bool want_bulk_ = false;
  char sign_ = 0;     // The first byte of the value being read.
  std::string line_;  // Start of a line that was cut.
  Reply root_;
  Reply* value_ = nullptr;  // The one being read.
  std::vector<Open> open_;
  size_t elements_ = 0;
  size_t text_bytes_ = 0;
  uint64_t bulk_bytes_ = 0;  // Of the bulk string; while it is read, those left.
  uint32_t end_bytes_ = 0;   // How many bytes of its CRLF have come.
  const char* problem_ = "";
};

}  // namespace stemma::tier::redis
