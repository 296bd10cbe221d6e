#include "json/write.h"

#include <array>
#include <charconv>
#include <cmath>

#include "json/utf8.h"

namespace stemma {

namespace {

// For each byte: 1 if it stands for itself, the letter after the backslash ('u' for \u00XX), or 0
// if it is above ASCII.
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> table{};
  for (int i = 0; i < 0x20; ++i) table[i] = 'u';
  for (int i = 0x20; i < 0x80; ++i) table[i] = 1;
  table['"'] = '"';
  table['\\'] = '\\';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table[0x7F] = 'u';
  return table;
}
constexpr std::array<char, 256> kEscapes = make_escapes();

void append_escape(std::string& out, uint8_t byte) {
  out += '\\';
  out += kEscapes[byte];
  if (kEscapes[byte] != 'u') return;
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "00";
  out += kDigits[byte >> 4U];
  out += kDigits[byte & 15U];
}

// Size of the character above ASCII at the front of `text`, or 0 if there is none.
size_t character_bytes(std::string_view text) noexcept {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto follows = [&](size_t i) { return (at(i) & 0xC0U) == 0x80; };
  const uint8_t first = at(0);
  const uint8_t second = at(1);
  if (first < 0xC2 || first > 0xF4 || !follows(1)) return 0;
  if (first < 0xE0) return 2;
  if (!follows(2) || (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if (first < 0xF0) return 3;
  if (!follows(3) || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return 4;
}

template <class T>
void append_floating(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
  // Readers take "-0" for an integer, which has no negative zero.
  if (value == 0 && std::signbit(value)) out += ".0";
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  size_t begin = 0;  // Begin of the bytes that can be copied unchanged.
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (kEscapes[byte] == 1) {
      ++i;
      continue;
    }
    if (byte >= 0x80) {
      if (const size_t bytes = character_bytes(text.substr(i)); bytes != 0) {
        i += bytes;
        continue;
      }
      // Our own text is valid UTF-8; from an invalid byte on, take the slow path.
      out.append(text.substr(begin, i - begin));
      append_json_escaped(out, to_utf8(text.substr(i)));
      return;
    }
    out.append(text.substr(begin, i - begin));
    append_escape(out, byte);
    begin = ++i;
  }
  out.append(text.substr(begin));
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_json_number(std::string& out, uint64_t value) {
  std::array<char, 20> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

void append_json_number(std::string& out, double value) { append_floating(out, value); }
void append_json_number(std::string& out, float value) { append_floating(out, value); }

std::string& JsonObject::name(std::string_view name) {
  if (!first_) out_ += ',';
  first_ = false;
  append_json_string(out_, name);
  return out_ += ':';
}

void JsonObject::add(std::string_view name, std::string_view text) {
  append_json_string(this->name(name), text);
}

}  // namespace stemma
