#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "jinja/budget.h"
#include "jinja/text.h"

namespace stemma::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Letters of other scripts count as parts of names.
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

std::optional<uint32_t> hex_digit(char c) {
  if (is_digit(c)) return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

// All newlines become \n, and a newline at the end is removed.
std::string with_plain_newlines(std::string_view source) {
  std::string plain;
  plain.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      plain.push_back('\n');
    } else {
      plain.push_back(source[i]);
    }
  }
  if (!plain.empty() && plain.back() == '\n') plain.pop_back();
  return plain;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)), view_(source_) {}

  std::vector<Token> run() {
    while (at_ < view_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        data(at_, view_.size());
        advance(view_.size());
        break;
      }
      const char kind = view_[tag + 1];
      const size_t data_end = strip_before(at_, tag, kind != '{');
      data(at_, data_end);
      advance(tag);
      if (kind == '#') {
        comment();
      } else if (kind == '{') {
        inside("}}", TokenKind::print_begin, TokenKind::print_end);
      } else if (!raw()) {
        inside("%}", TokenKind::tag_begin, TokenKind::tag_end);
      }
    }
    put(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void wrong(std::string message) const {
    throw Failure{ProblemKind::syntax, std::move(message), line_};
  }

  void advance(size_t to) {
    line_ += static_cast<uint32_t>(std::count(view_.begin() + static_cast<ptrdiff_t>(at_),
                                              view_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void put(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }

  void data(size_t begin, size_t end) {
    if (begin < end) put(TokenKind::data, view_.substr(begin, end - begin));
  }

  size_t next_tag() const {
    for (size_t i = at_; (i = view_.find('{', i)) != std::string_view::npos; ++i) {
      const char next = i + 1 < view_.size() ? view_[i + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string_view::npos;
  }

  // Returns where the data before `tag` ends. A tag alone on its line removes its indent.
  size_t strip_before(size_t begin, size_t tag, bool is_block) const {
    const char sign = tag + 2 < view_.size() ? view_[tag + 2] : '\0';
    if (sign == '-') return skip_space_back(view_, begin, tag);
    if (sign == '+' || !is_block) return tag;
    const size_t newline = view_.substr(begin, tag - begin).rfind('\n');
    const bool starts_line = begin == 0 || view_[begin - 1] == '\n';
    if (newline == std::string_view::npos && !starts_line) return tag;
    const size_t line = newline == std::string_view::npos ? begin : begin + newline + 1;
    return skip_space(view_.substr(0, tag), line) == tag ? line : tag;
  }

  bool starts(std::string_view what) const { return view_.substr(at_).starts_with(what); }

  // Trims after the end of a tag or comment. `-` removes all space, otherwise a newline is removed.
  void trim_after(bool minus, bool plus) {
    if (minus) {
      advance(skip_space(view_, at_));
    } else if (!plus && at_ < view_.size() && view_[at_] == '\n') {
      advance(at_ + 1);
    }
  }

  void comment() {
    size_t begin = at_ + 2;
    if (begin < view_.size() && (view_[begin] == '-' || view_[begin] == '+')) ++begin;
    const size_t end = view_.find("#}", begin);
    if (end == std::string_view::npos) wrong("a comment does not end");
    const char sign = end > begin ? view_[end - 1] : '\0';
    advance(end + 2);
    trim_after(sign == '-', sign == '+');
  }

  // Reads {% raw %} as a whole, if this is one.
  bool raw() {
    size_t word = at_ + 2;
    if (word < view_.size() && (view_[word] == '-' || view_[word] == '+')) ++word;
    word = skip_space(view_, word);
    if (!view_.substr(word).starts_with("raw")) return false;
    size_t end = skip_space(view_, word + 3);
    const bool minus = end < view_.size() && view_[end] == '-';
    if (minus) ++end;
    if (!view_.substr(end).starts_with("%}")) return false;
    advance(end + 2);
    if (minus) advance(skip_space(view_, at_));
    raw_body();
    return true;
  }

  void raw_body() {
    for (size_t tag = at_; (tag = view_.find("{%", tag)) != std::string_view::npos; ++tag) {
      size_t word = tag + 2;
      if (word < view_.size() && (view_[word] == '-' || view_[word] == '+')) ++word;
      word = skip_space(view_, word);
      if (!view_.substr(word).starts_with("endraw")) continue;
      size_t end = skip_space(view_, word + 6);
      const char sign = end < view_.size() ? view_[end] : '\0';
      if (sign == '-' || sign == '+') ++end;
      if (!view_.substr(end).starts_with("%}")) continue;
      data(at_, strip_before(at_, tag, true));
      advance(end + 2);
      trim_after(sign == '-', sign == '+');
      return;
    }
    wrong("block 'raw' does not end");
  }

  void inside(std::string_view close, TokenKind begin, TokenKind end) {
    put(begin, "");
    advance(at_ + 2);
    if (at_ < view_.size() && (view_[at_] == '-' || view_[at_] == '+')) advance(at_ + 1);
    std::string open;  // Brackets that are still open.
    while (true) {
      advance(skip_space(view_, at_));
      if (at_ >= view_.size()) {
        wrong(end == TokenKind::tag_end ? "a tag does not end" : "an expression does not end");
      }
      const char c = view_[at_];
      if (open.empty()) {
        const bool minus = c == '-' && view_.substr(at_ + 1).starts_with(close);
        const bool plus =
            c == '+' && end == TokenKind::tag_end && view_.substr(at_ + 1).starts_with(close);
        if (minus || plus || starts(close)) {
          put(end, "");
          advance(at_ + close.size() + ((minus || plus) ? 1 : 0));
          if (minus || end == TokenKind::tag_end) trim_after(minus, plus);
          return;
        }
      }
      if (begins_name(c)) {
        take(TokenKind::name, continues_name);
      } else if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        symbol(open);
      }
    }
  }

  void take(TokenKind kind, bool (*belongs)(char)) {
    size_t end = at_;
    while (end < view_.size() && belongs(view_[end])) ++end;
    put(kind, view_.substr(at_, end - at_));
    advance(end);
  }

  size_t digits(size_t from) const {
    while (from < view_.size() &&
           (is_digit(view_[from]) || (view_[from] == '_' && from + 1 < view_.size() &&
                                      is_digit(view_[from + 1]) && is_digit(view_[from - 1])))) {
      ++from;
    }
    return from;
  }

  void number() {
    const auto at = [&](size_t i) { return i < view_.size() ? view_[i] : '\0'; };
    const bool after_dot = at_ > 0 && view_[at_ - 1] == '.';
    const char base = static_cast<char>(at(at_ + 1) | 0x20);
    if (at(at_) == '0' && (base == 'x' || base == 'o' || base == 'b') &&
        (hex_digit(at(at_ + 2)) || at(at_ + 2) == '_')) {
      take(TokenKind::integer, continues_name);
      return;
    }
    size_t end = digits(at_);
    bool real = false;
    if (!after_dot && at(end) == '.' && is_digit(at(end + 1))) {
      end = digits(end + 1);
      real = true;
    }
    if (!after_dot && (at(end) | 0x20) == 'e') {
      const size_t power = end + ((at(end + 1) == '+' || at(end + 1) == '-') ? 2 : 1);
      if (is_digit(at(power))) {
        end = digits(power);
        real = true;
      }
    }
    std::string text;
    for (size_t i = at_; i < end; ++i) {
      if (view_[i] != '_') text.push_back(view_[i]);
    }
    put(real ? TokenKind::real : TokenKind::integer, text);
    advance(end);
  }

  void string(char quote) {
    const uint32_t line = line_;
    std::string text;
    size_t i = at_ + 1;
    while (true) {
      if (i >= view_.size()) wrong("a string does not end");
      const char c = view_[i];
      if (c == quote) break;
      if (c == '\\' && i + 1 < view_.size()) {
        i = escape(i + 1, text);
      } else {
        text.push_back(c);
        ++i;
      }
    }
    advance(i + 1);
    tokens_.push_back({TokenKind::string, line, std::move(text)});
  }

  // Works as in Python's string literals; returns where the text continues.
  size_t escape(size_t i, std::string& out) const {
    const char c = view_[i];
    switch (c) {
      case '\n': return i + 1;
      case '\\':
      case '\'':
      case '"': out.push_back(c); return i + 1;
      case 'a': out.push_back('\a'); return i + 1;
      case 'b': out.push_back('\b'); return i + 1;
      case 'f': out.push_back('\f'); return i + 1;
      case 'n': out.push_back('\n'); return i + 1;
      case 'r': out.push_back('\r'); return i + 1;
      case 't': out.push_back('\t'); return i + 1;
      case 'v': out.push_back('\v'); return i + 1;
      case 'x': return hex_escape(i + 1, 2, out);
      case 'u': return hex_escape(i + 1, 4, out);
      case 'U': return hex_escape(i + 1, 8, out);
      case 'N': throw Failure{ProblemKind::unsupported, "escape '\\N' is not supported", line_};
      default: break;
    }
    if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t end = i;
      while (end < i + 3 && end < view_.size() && view_[end] >= '0' && view_[end] <= '7') {
        code = code * 8 + static_cast<uint32_t>(view_[end++] - '0');
      }
      append_utf8(out, code);
      return end;
    }
    out.push_back('\\');
    return i;
  }

  size_t hex_escape(size_t i, size_t count, std::string& out) const {
    uint32_t code = 0;
    for (size_t end = i + count; i < end; ++i) {
      const auto digit = i < view_.size() ? hex_digit(view_[i]) : std::nullopt;
      if (!digit) wrong("an escape in a string lacks digits");
      code = code << 4U | *digit;
    }
    if (code > 0x10FFFF) wrong("an escape in a string is no character");
    append_utf8(out, code);
    return i;
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 6> kTwo = {"**", "//", "==", "!=", "<=", ">="};
    static constexpr std::string_view kOne = "+-*/%~=<>.,:|()[]{};";
    for (const std::string_view two : kTwo) {
      if (!starts(two)) continue;
      put(TokenKind::symbol, two);
      advance(at_ + 2);
      return;
    }
    const char c = view_[at_];
    if (kOne.find(c) == std::string_view::npos) {
      wrong("unexpected character '" + std::string(1, c) + "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) wrong("unexpected '" + std::string(1, c) + "'");
      if (open.back() != c) {
        wrong("unexpected '" + std::string(1, c) + "', expected '" + open.back() + "'");
      }
      open.pop_back();
    }
    put(TokenKind::symbol, std::string_view(&c, 1));
    advance(at_ + 1);
  }

  std::string source_;
  std::string_view view_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw Failure{ProblemKind::limit, "the template is too long"};
  }
  return Lexer(source).run();
}

}  // namespace stemma::jinja
