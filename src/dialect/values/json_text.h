// JSON as it arrives, and JSON as template values.
//
// JsonScanner judges a text byte by byte, so that what a model samples can be passed on before it
// is whole. Reading is strict where JSON is: no comments, no trailing commas, no NaN.
//
// Threading:  a scanner one thread at a time; the functions are pure.
// Cost:       O(bytes); a scanner holds one byte for each level of nesting, at most kMostDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace stemma::dialect {

class JsonScanner {
 public:
  static constexpr size_t kMostDepth = 128;
  enum class Verdict : uint8_t {
    more,          // The value goes on.
    done,          // This byte ended the value.
    ended_before,  // The value, a number, ended before this byte, which is not part of it.
    bad,           // No JSON begins like this.
  };

  Verdict push(char byte);
  // Nothing follows: whether what was pushed is a whole value.
  bool whole() const noexcept;

 private:
  enum class At : uint8_t {
    value,
    first_key,
    key,
    colon,
    after,
    string,
    escape,
    unicode,
    word,
    number,
    end
  };
  enum class Number : uint8_t {
    sign,
    zero,
    integer,
    point,
    fraction,
    exponent,
    exponent_sign,
    power
  };

  Verdict begin_value(char byte);
  Verdict end_value();
  Verdict in_string(char byte);
  Verdict in_number(char byte);
  Verdict between(char byte);
  bool number_is_whole() const noexcept;

  At at_ = At::value;
  Number number_ = Number::sign;
  bool first_item_ = false;  // "]" may follow at once.
  bool is_key_ = false;
  uint8_t hex_left_ = 0;
  std::string_view word_;  // What is left of true, false or null.
  std::string stack_;
};

// Whether all of `text`, blanks aside, is one value.
bool is_json(std::string_view text);
// The value that `text` is; nullopt if it is none. Strings get `origin`.
std::optional<jinja::Value> read_json(std::string_view text,
                                      jinja::Origin origin = jinja::kNoOrigin);
// The value that begins at `position`, which is moved behind it.
std::optional<jinja::Value> read_json_at(std::string_view text, size_t& position,
                                         jinja::Origin origin = jinja::kNoOrigin);

// Appends `text` as it stands inside quotes.
void append_json_escaped(std::string& out, std::string_view text);
std::string json_string(std::string_view text);
// The text that a JSON string, with its quotes, stands for.
std::optional<std::string> json_unquoted(std::string_view quoted);
// A template value as JSON, in the style of tojson.
std::string write_json(const jinja::Value& value);

inline bool is_blank(char byte) noexcept {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace stemma::dialect
