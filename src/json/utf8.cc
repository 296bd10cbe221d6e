#include "json/utf8.h"

#include <cstring>

namespace stemma {
namespace {

// The number of ASCII bytes at the front of `text`.
size_t ascii_run(std::string_view text) noexcept {
  size_t n = 0;
  for (; n + 8 <= text.size(); n += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + n, sizeof word);
    if ((word & 0x8080'8080'8080'8080U) != 0) break;
  }
  while (n < text.size() && static_cast<uint8_t>(text[n]) < 0x80) ++n;
  return n;
}

}  // namespace

// Begins a character. The second byte's range excludes overlong forms, surrogates and code points
// above U+10FFFF.
void Utf8Stream::begin(uint8_t byte, std::string& out) {
  low_ = 0x80;
  high_ = 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) {
    want_ = 2;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    want_ = 3;
    if (byte == 0xE0) low_ = 0xA0;
    if (byte == 0xED) high_ = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    want_ = 4;
    if (byte == 0xF0) low_ = 0x90;
    if (byte == 0xF4) high_ = 0x8F;
  } else {
    out += kReplacementCharacter;
    return;
  }
  part_[0] = static_cast<char>(byte);
  have_ = 1;
}

void Utf8Stream::add(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (have_ == 0) {
      const size_t run = ascii_run(bytes);
      out.append(bytes.substr(0, run));
      bytes.remove_prefix(run);
      if (bytes.empty()) return;
      begin(static_cast<uint8_t>(bytes.front()), out);
      bytes.remove_prefix(1);
      continue;
    }
    const uint8_t byte = static_cast<uint8_t>(bytes.front());
    if (byte < low_ || byte > high_) {
      // The character was not continued; treat this byte again as the first of another one.
      out += kReplacementCharacter;
      have_ = 0;
      continue;
    }
    part_[have_++] = static_cast<char>(byte);
    low_ = 0x80;
    high_ = 0xBF;
    bytes.remove_prefix(1);
    if (have_ == want_) {
      out.append(part_, have_);
      have_ = 0;
    }
  }
}

void Utf8Stream::finish(std::string& out) {
  if (have_ != 0) out += kReplacementCharacter;
  have_ = 0;
}

bool is_utf8(std::string_view text) {
  // Text is valid if error replacement leaves it unchanged, so both use one set of rules.
  const size_t run = ascii_run(text);
  return run == text.size() || to_utf8(text.substr(run)) == text.substr(run);
}

std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Stream stream;
  stream.add(text, out);
  stream.finish(out);
  return out;
}

}  // namespace stemma
