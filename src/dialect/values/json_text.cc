#include "dialect/values/json_text.h"

#include <utility>

namespace stemma::dialect {

using Verdict = JsonScanner::Verdict;

namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

Verdict JsonScanner::push(char byte) {
  switch (at_) {
    case At::string:
    case At::escape:
    case At::unicode: return in_string(byte);
    case At::number: return in_number(byte);
    case At::word:
      if (byte != word_.front()) return Verdict::bad;
      word_.remove_prefix(1);
      return word_.empty() ? end_value() : Verdict::more;
    case At::end: return Verdict::bad;
    default: return is_blank(byte) ? Verdict::more : between(byte);
  }
}

// Handles a byte between values that is not blank.
Verdict JsonScanner::between(char byte) {
  switch (at_) {
    case At::first_key:
      if (byte == '}') {
        stack_.pop_back();
        return end_value();
      }
      [[fallthrough]];
    case At::key:
      if (byte != '"') return Verdict::bad;
      is_key_ = true;
      at_ = At::string;
      return Verdict::more;
    case At::colon:
      if (byte != ':') return Verdict::bad;
      at_ = At::value;
      first_item_ = false;
      return Verdict::more;
    case At::after:
      if (byte == ',') {
        at_ = stack_.back() == '{' ? At::key : At::value;
        first_item_ = false;
        return Verdict::more;
      }
      if (byte != (stack_.back() == '{' ? '}' : ']')) return Verdict::bad;
      stack_.pop_back();
      return end_value();
    default: return begin_value(byte);
  }
}

Verdict JsonScanner::begin_value(char byte) {
  const bool first = std::exchange(first_item_, false);
  switch (byte) {
    case '{':
    case '[':
      if (stack_.size() >= kMostDepth) return Verdict::bad;
      stack_ += byte;
      at_ = byte == '{' ? At::first_key : At::value;
      first_item_ = byte == '[';
      return Verdict::more;
    case ']':
      if (!first) return Verdict::bad;
      stack_.pop_back();
      return end_value();
    case '"':
      is_key_ = false;
      at_ = At::string;
      return Verdict::more;
    case 't': word_ = "rue"; break;
    case 'f': word_ = "alse"; break;
    case 'n': word_ = "ull"; break;
    case '-':
      at_ = At::number;
      number_ = Number::sign;
      return Verdict::more;
    default:
      if (!is_digit(byte)) return Verdict::bad;
      at_ = At::number;
      number_ = byte == '0' ? Number::zero : Number::integer;
      return Verdict::more;
  }
  at_ = At::word;
  return Verdict::more;
}

Verdict JsonScanner::end_value() {
  at_ = stack_.empty() ? At::end : At::after;
  return stack_.empty() ? Verdict::done : Verdict::more;
}

Verdict JsonScanner::in_string(char byte) {
  if (at_ == At::unicode) {
    if (!is_hex(byte)) return Verdict::bad;
    if (--hex_left_ == 0) at_ = At::string;
    return Verdict::more;
  }
  if (at_ == At::escape) {
    at_ = At::string;
    if (byte == 'u') {
      at_ = At::unicode;
      hex_left_ = 4;
      return Verdict::more;
    }
    return std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos ? Verdict::more
                                                                               : Verdict::bad;
  }
  if (byte == '\\') {
    at_ = At::escape;
  } else if (byte == '"') {
    if (!is_key_) return end_value();
    at_ = At::colon;
  } else if (static_cast<uint8_t>(byte) < 0x20) {
    return Verdict::bad;
  }
  return Verdict::more;
}

bool JsonScanner::number_is_whole() const noexcept {
  return number_ == Number::zero || number_ == Number::integer || number_ == Number::fraction ||
         number_ == Number::power;
}

Verdict JsonScanner::in_number(char byte) {
  const bool digit = is_digit(byte);
  switch (number_) {
    case Number::sign:
      if (!digit) return Verdict::bad;
      number_ = byte == '0' ? Number::zero : Number::integer;
      return Verdict::more;
    case Number::point:
      if (!digit) return Verdict::bad;
      number_ = Number::fraction;
      return Verdict::more;
    case Number::exponent:
      if (byte == '+' || byte == '-') {
        number_ = Number::exponent_sign;
        return Verdict::more;
      }
      [[fallthrough]];
    case Number::exponent_sign:
      if (!digit) return Verdict::bad;
      number_ = Number::power;
      return Verdict::more;
    default: break;
  }
  if (digit && number_ != Number::zero) return Verdict::more;
  if (byte == '.' && (number_ == Number::zero || number_ == Number::integer)) {
    number_ = Number::point;
    return Verdict::more;
  }
  if ((byte == 'e' || byte == 'E') && number_ != Number::power) {
    number_ = Number::exponent;
    return Verdict::more;
  }
  if (digit) return Verdict::bad;  // 01
  if (end_value() == Verdict::done) return Verdict::ended_before;
  return push(byte);
}

bool JsonScanner::whole() const noexcept {
  return at_ == At::end || (at_ == At::number && stack_.empty() && number_is_whole());
}

bool is_json(std::string_view text) {
  JsonScanner scanner;
  text = trimmed(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const Verdict verdict = scanner.push(text[i]);
    if (verdict == Verdict::done) return i + 1 == text.size();
    if (verdict != Verdict::more) return false;
  }
  return scanner.whole();
}

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

void append_json_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char byte : text) {
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<uint8_t>(byte) < 0x20) {
          out += "\\u00";
          out += kHex[static_cast<uint8_t>(byte) >> 4U];
          out += kHex[static_cast<uint8_t>(byte) & 15U];
        } else {
          out += byte;
        }
    }
  }
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out += '"';
}

}  // namespace stemma::dialect
