#include "dialect/values/literal_reader.h"

#include <algorithm>
#include <utility>

#include "dialect/values/json_text.h"

namespace stemma::dialect {

namespace {

constexpr size_t kMostLiteralDepth = 128;
constexpr size_t kMostWordBytes = 1024;
constexpr size_t kMostBlanksAfterQuote = 64;  // And before the comma or bracket.

char closer_of(char opener) { return opener == '(' ? ')' : opener == '[' ? ']' : '}'; }

}  // namespace

LiteralReader::LiteralReader(std::string quote, bool in_call) : quote_(std::move(quote)) {
  if (!in_call) return;
  stack_ = "(";
  at_ = At::key;
  empty_ = true;
  owes_brace_ = true;
}

LiteralReader::Verdict LiteralReader::read(std::string_view text, size_t& at, bool final,
                                           std::string& out) {
  if (std::exchange(owes_brace_, false)) out += '{';
  while (at < text.size()) {
    const size_t before = at;
    const Verdict verdict = step(text, at, final, out);
    if (verdict != Verdict::more) return verdict;
    if (at == before) return Verdict::more;  // It needs more bytes to continue.
  }
  return Verdict::more;
}

LiteralReader::Verdict LiteralReader::step(std::string_view text, size_t& at, bool final,
                                           std::string& out) {
  if (at_ == At::string) return in_string(text, at, final, out);
  if (at_ == At::word) return in_word(text, at, final, out);
  const char byte = text[at];
  if (is_blank(byte)) {
    ++at;
    return Verdict::more;
  }
  if (at_ == At::after) {
    if (byte != ',') {
      ++at;
      return close(byte, out);
    }
    ++at;
    out += ',';
    at_ = stack_.back() == '[' ? At::value : At::key;
    return Verdict::more;
  }
  if (at_ == At::separator) {
    if (byte != (stack_.back() == '(' ? '=' : ':')) return Verdict::bad;
    ++at;
    out += ':';
    at_ = At::value;
    return Verdict::more;
  }
  if (empty_ && !stack_.empty() && byte == closer_of(stack_.back())) {
    ++at;
    return close(byte, out);
  }
  bool wait = false;
  is_key_ = at_ == At::key;
  if (begin_string(text, at, final, wait)) {
    empty_ = false;
    out += '"';
    at_ = At::string;
    return Verdict::more;
  }
  if (wait) return Verdict::more;
  if (!is_key_ && (byte == '{' || byte == '[')) {
    ++at;
    return open(byte, out);
  }
  if (std::string_view("{}[](),:='\"").find(byte) != std::string_view::npos) return Verdict::bad;
  empty_ = false;
  at_ = At::word;
  return in_word(text, at, final, out);
}

// Whether a string begins at `at`; if so, moves `at` into it.
bool LiteralReader::begin_string(std::string_view text, size_t& at, bool final, bool& wait) {
  if (quote_.empty()) {
    if (text[at] != '"' && text[at] != '\'') return false;
    python_quote_ = text[at++];
    return true;
  }
  const std::string_view rest = text.substr(at);
  if (rest.substr(0, quote_.size()) == quote_) {
    at += quote_.size();
    return true;
  }
  wait = !final && std::string_view(quote_).substr(0, rest.size()) == rest;
  return false;
}

LiteralReader::Verdict LiteralReader::open(char byte, std::string& out) {
  if (stack_.size() >= kMostLiteralDepth) return Verdict::bad;
  stack_ += byte;
  out += byte;
  empty_ = true;
  at_ = byte == '[' ? At::value : At::key;
  return Verdict::more;
}

LiteralReader::Verdict LiteralReader::close(char byte, std::string& out) {
  if (stack_.empty() || byte != closer_of(stack_.back())) return Verdict::bad;
  out += byte == ')' ? '}' : byte;
  stack_.pop_back();
  return ended();
}

LiteralReader::Verdict LiteralReader::ended() {
  empty_ = false;
  at_ = At::after;
  return stack_.empty() ? Verdict::done : Verdict::more;
}

LiteralReader::Verdict LiteralReader::in_string(std::string_view text, size_t& at, bool final,
                                                std::string& out) {
  const std::string closer = quote_.empty() ? std::string(1, python_quote_) : quote_;
  const std::string_view rest = text.substr(at);
  size_t plain = 0;
  while (plain < rest.size() && rest[plain] != closer[0] &&
         (!quote_.empty() || rest[plain] != '\\')) {
    ++plain;
  }
  append_json_escaped(out, rest.substr(0, plain));
  at += plain;
  if (at == text.size()) return Verdict::more;
  if (quote_.empty() && text[at] == '\\') return escape(text, at, out);
  const std::string_view here = text.substr(at);
  if (here.substr(0, closer.size()) != closer) {
    if (!final && std::string_view(closer).substr(0, here.size()) == here) return Verdict::more;
    append_json_escaped(out, here.substr(0, 1));
    ++at;
    return Verdict::more;
  }
  if (quote_.empty()) {
    size_t next = closer.size();
    while (next < here.size() && next <= kMostBlanksAfterQuote && is_blank(here[next])) ++next;
    if (next == here.size() && !final) return Verdict::more;
    const bool ends =
        next == here.size() || std::string_view(",:)]}").find(here[next]) != std::string_view::npos;
    if (!ends) {
      append_json_escaped(out, closer);
      ++at;
      return Verdict::more;
    }
  }
  at += closer.size();
  out += '"';
  if (is_key_) {
    at_ = At::separator;
    return Verdict::more;
  }
  return ended();
}

// Reads a backslash and what follows it in a Python string.
LiteralReader::Verdict LiteralReader::escape(std::string_view text, size_t& at, std::string& out) {
  if (at + 1 >= text.size()) return Verdict::more;
  const char what = text[at + 1];
  const std::string_view from = "ntrbf'\"\\";
  const std::string_view to = "\n\t\r\b\f'\"\\";
  const size_t known = from.find(what);
  if (known == std::string_view::npos) {
    append_json_escaped(out, "\\");  // Python keeps the backslash of an unknown escape.
    ++at;
    return Verdict::more;
  }
  append_json_escaped(out, to.substr(known, 1));
  at += 2;
  return Verdict::more;
}

// Reads a number, true, None, or a key without quotes.
LiteralReader::Verdict LiteralReader::in_word(std::string_view text, size_t& at, bool final,
                                              std::string& out) {
  const std::string_view ends = is_key_ ? (stack_.back() == '(' ? "=" : ":") : ",)]}";
  const std::string_view rest = text.substr(at);
  const size_t end = rest.substr(0, kMostWordBytes).find_first_of(ends);
  if (end == std::string_view::npos && (!final || is_key_ || !stack_.empty())) {
    return rest.size() >= kMostWordBytes ? Verdict::bad : Verdict::more;
  }
  const std::string_view word = trimmed(rest.substr(0, end));
  if (word.empty()) return Verdict::bad;
  at += std::min(end, rest.size());
  if (is_key_) {
    out += json_string(word);
    at_ = At::separator;
    return Verdict::more;
  }
  if (word == "True" || word == "False" || word == "None") {
    out += word == "True" ? "true" : word == "False" ? "false" : "null";
  } else if (is_json(word)) {
    out += word;
  } else {
    out += json_string(word);
  }
  return ended();
}

std::optional<std::string> python_as_json(std::string_view text) {
  LiteralReader reader;
  std::string out;
  size_t at = 0;
  if (reader.read(text, at, true, out) != LiteralReader::Verdict::done ||
      !trimmed(text.substr(at)).empty()) {
    return std::nullopt;
  }
  return out;
}

}  // namespace stemma::dialect
