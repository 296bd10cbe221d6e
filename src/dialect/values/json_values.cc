// JSON to template values and back.
#include <charconv>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "dialect/values/json_text.h"
#include "jinja/budget.h"
#include "jinja/print.h"

namespace stemma::dialect {

using jinja::Value;

namespace {

// Reads four digits; the text was scanned, so they are there.
uint32_t hex4(std::string_view digits) {
  uint32_t code = 0;
  std::from_chars(digits.data(), digits.data() + 4, code, 16);
  return code;
}

// Reads a text that JsonScanner has accepted as one value.
class Reader {
 public:
  Reader(std::string_view text, jinja::Origin origin) : text_(text), origin_(origin) {}

  Value value() {
    skip();
    switch (text_[at_]) {
      case '{': return object();
      case '[': return array();
      case '"': return Value::string(string(), origin_);
      case 't': at_ += 4; return Value::boolean(true);
      case 'f': at_ += 5; return Value::boolean(false);
      case 'n': at_ += 4; return Value::none();
      default: return number();
    }
  }

  std::string string() {
    std::string out;
    for (++at_; text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      switch (text_[++at_]) {
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u': unicode(out); break;
        default: out += text_[at_];
      }
    }
    ++at_;
    return out;
  }

 private:
  void skip() {
    while (is_blank(text_[at_])) ++at_;
  }

  // at_ is on the u.
  void unicode(std::string& out) {
    uint32_t code = hex4(text_.substr(at_ + 1));
    at_ += 4;
    const std::string_view rest = text_.substr(at_ + 1);
    if (code >= 0xD800 && code < 0xDC00 && rest.size() >= 6 && rest.substr(0, 2) == "\\u") {
      const uint32_t low = hex4(rest.substr(2));
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
        at_ += 6;
      }
    }
    jinja::append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
  }

  Value object() {
    auto dict = std::make_shared<jinja::Dict>();
    for (++at_;; ++at_) {
      skip();
      if (text_[at_] == '}') break;
      // Names were written by the same writer.
      Value key = Value::string(string(), origin_);
      skip();
      ++at_;  // Skip the colon.
      dict->set(std::move(key), value());
      skip();
      if (text_[at_] == '}') break;
    }
    ++at_;
    return Value::of(std::shared_ptr<const jinja::Dict>(std::move(dict)));
  }

  Value array() {
    std::vector<Value> items;
    for (++at_;; ++at_) {
      skip();
      if (text_[at_] == ']') break;
      items.push_back(value());
      skip();
      if (text_[at_] == ']') break;
    }
    ++at_;
    return Value::list(std::move(items));
  }

  Value number() {
    size_t end = at_;
    while (end < text_.size() &&
           std::string_view("+-.0123456789eE").find(text_[end]) != std::string_view::npos) {
      ++end;
    }
    const std::string_view digits = text_.substr(at_, end - at_);
    at_ = end;
    if (digits.find_first_of(".eE") == std::string_view::npos) {
      int64_t whole = 0;
      if (std::from_chars(digits.begin(), digits.end(), whole).ec == std::errc()) {
        return Value::integer(whole);
      }
    }
    double real = 0;
    if (std::from_chars(digits.begin(), digits.end(), real).ec != std::errc()) {
      // JSON has no infinity: numbers that are too large become the largest double, numbers that
      // are too small become zero.
      const bool small = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
      real = small ? 0.0 : std::numeric_limits<double>::max();
      if (digits.front() == '-') real = -real;
    }
    return Value::real(real);
  }

  std::string_view text_;
  size_t at_ = 0;
  jinja::Origin origin_;
};

}  // namespace

std::optional<Value> read_json_at(std::string_view text, size_t& position, jinja::Origin origin) {
  JsonScanner scanner;
  for (size_t i = position; i < text.size(); ++i) {
    const JsonScanner::Verdict verdict = scanner.push(text[i]);
    if (verdict == JsonScanner::Verdict::more) continue;
    if (verdict == JsonScanner::Verdict::bad) return std::nullopt;
    const size_t end = verdict == JsonScanner::Verdict::done ? i + 1 : i;
    Reader reader(text.substr(position, end - position), origin);
    position = end;
    return reader.value();
  }
  if (!scanner.whole()) return std::nullopt;
  Reader reader(text.substr(position), origin);
  position = text.size();
  return reader.value();
}

std::optional<Value> read_json(std::string_view text, jinja::Origin origin) {
  if (!is_json(text)) return std::nullopt;
  size_t position = 0;
  return read_json_at(text, position, origin);
}

std::string write_json(const Value& value) {
  jinja::Budget budget{jinja::Limits{}};
  jinja::TextBuilder out(budget);
  try {
    jinja::print_json(budget, out, value, {});
  } catch (const jinja::Failure&) {
    return "null";  // Undefined, or an object that exists only while rendering: JSON has neither.
  }
  return out.take().bytes;
}

std::optional<std::string> json_unquoted(std::string_view quoted) {
  if (quoted.empty() || quoted.front() != '"' || !is_json(quoted)) return std::nullopt;
  return Reader(quoted, jinja::kNoOrigin).string();
}

}  // namespace stemma::dialect
