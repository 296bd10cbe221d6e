// Splits a template's text into tokens, with the whitespace rules of chat templates: trim_blocks
// and lstrip_blocks are on, `-` and `+` at a tag's ends override them, and one newline at the very
// end is dropped.
// Threading: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::jinja {

inline constexpr size_t kMaxSourceBytes = size_t{4} << 20U;

enum class TokenKind : uint8_t {
  data,
  print_begin,
  print_end,
  tag_begin,
  tag_end,
  name,
  string,
  integer,
  real,
  symbol,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  uint32_t line = 0;
  std::string text;  // The value of data and strings; for others, the source text.

  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool symbol(std::string_view t) const { return is(TokenKind::symbol, t); }
  bool name(std::string_view t) const { return is(TokenKind::name, t); }
};

// Ends with a token of kind `end`. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace stemma::jinja
