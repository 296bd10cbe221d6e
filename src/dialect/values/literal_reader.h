// LiteralReader: values that are not quite JSON, turned into JSON as they arrive.
//
//   Python  (place='Rome', days=3, exact=True)        ->  {"place":"Rome","days":3,"exact":true}
//   Gemma   {place:<|"|>Rome<|"|>,days:3}             ->  {"place":"Rome","days":3}
//
// A Python quote ends a string only where a comma, a colon or a bracket follows: templates do not
// escape quotes inside strings.
//
// Invariant:  what was appended so far is the beginning of a JSON value; after `done` it is one.
// Threading:  one thread at a time.
// Cost:       O(bytes); one byte for each level of nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::dialect {

class LiteralReader {
 public:
  enum class Verdict : uint8_t { more, done, bad };

  // `quote` stands around strings; empty: strings are Python's. The value is an object, or what
  // stands in brackets if `in_call`: the opening "(" was read.
  explicit LiteralReader(std::string quote = {}, bool in_call = false);

  // Reads text[at, end) as far as it can be decided, moves `at`, and appends JSON. `final`: nothing
  // follows.
  Verdict read(std::string_view text, size_t& at, bool final, std::string& out);

 private:
  enum class At : uint8_t { value, key, separator, after, string, word };

  Verdict step(std::string_view text, size_t& at, bool final, std::string& out);
  Verdict open(char byte, std::string& out);
  Verdict close(char byte, std::string& out);
  Verdict in_string(std::string_view text, size_t& at, bool final, std::string& out);
  Verdict in_word(std::string_view text, size_t& at, bool final, std::string& out);
  Verdict escape(std::string_view text, size_t& at, std::string& out);
  bool begin_string(std::string_view text, size_t& at, bool final, bool& wait);
  Verdict ended();

  std::string quote_;
  std::string stack_;
  At at_ = At::value;
  bool is_key_ = false;
  bool empty_ = false;       // The innermost container has nothing yet.
  bool owes_brace_ = false;  // The opening bracket was read elsewhere; its JSON is not written yet.
  char python_quote_ = 0;
};

// All of `text`, a Python literal, as JSON; nullopt if it is none.
std::optional<std::string> python_as_json(std::string_view text);

}  // namespace stemma::dialect
