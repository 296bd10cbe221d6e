#include "jinja/text.h"

#include <string.h>  // NOLINT: memmem is not in <cstring>.

#include <algorithm>

#include "jinja/budget.h"

namespace stemma::jinja {

void TextBuilder::mark(size_t begin, size_t end, Origin origin) {
  if (!text_.marks.empty()) {
    Mark& last = text_.marks.back();
    if (last.end == begin && last.origin == origin) {
      last.end = end;
      return;
    }
  }
  budget_->bytes(sizeof(Mark));
  text_.marks.push_back({begin, end, origin});
}

void TextBuilder::add(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  budget_->bytes(bytes.size());
  const size_t begin = text_.bytes.size();
  text_.bytes.append(bytes);
  if (origin != kNoOrigin) mark(begin, text_.bytes.size(), origin);
}

void TextBuilder::add(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  budget_->bytes(end - begin);
  const size_t at = text_.bytes.size();
  text_.bytes.append(text.bytes, begin, end - begin);
  auto next = std::lower_bound(text.marks.begin(), text.marks.end(), begin,
                               [](const Mark& m, size_t position) { return m.end <= position; });
  for (; next != text.marks.end() && next->begin < end; ++next) {
    mark(at + std::max(next->begin, begin) - begin, at + std::min(next->end, end) - begin,
         next->origin);
  }
}

Character wide_character_at(std::string_view text, size_t position) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const uint8_t lead = byte(0);
  const uint32_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  constexpr Character kStray{kNotACharacter, 1};
  if (lead < 0xC2 || lead > 0xF4 || text.size() - position < length) return kStray;
  uint32_t code = lead & (0x7FU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return kStray;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return kStray;
  return {code, length};
}

size_t character_before(std::string_view text, size_t position) noexcept {
  for (size_t back = 1; back <= 4 && back <= position; ++back) {
    if ((static_cast<uint8_t>(text[position - back]) & 0xC0U) == 0x80) continue;
    if (character_at(text.substr(0, position), position - back).bytes == back) {
      return position - back;
    }
    break;
  }
  return position - 1;
}

size_t count_characters(std::string_view text) noexcept {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += character_at(text, at).bytes;
  return count;
}

std::string_view encode_utf8(uint32_t code, std::array<char, 4>& room) noexcept {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  const auto tail = [&](uint32_t shift) {
    return static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
  };
  if (code < 0x80) {
    room = {static_cast<char>(code)};
    return {room.data(), 1};
  }
  if (code < 0x800) {
    room = {static_cast<char>(0xC0U | code >> 6U), tail(0)};
    return {room.data(), 2};
  }
  if (code < 0x10000) {
    room = {static_cast<char>(0xE0U | code >> 12U), tail(6), tail(0)};
    return {room.data(), 3};
  }
  room = {static_cast<char>(0xF0U | code >> 18U), tail(12), tail(6), tail(0)};
  return {room.data(), 4};
}

void append_utf8(std::string& out, uint32_t code) {
  std::array<char, 4> room{};
  out.append(encode_utf8(code, room));
}

bool is_space(uint32_t code) noexcept {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t skip_space(std::string_view text, size_t begin) noexcept {
  while (begin < text.size()) {
    const Character c = character_at(text, begin);
    if (!is_space(c.code)) break;
    begin += c.bytes;
  }
  return begin;
}

size_t skip_space_back(std::string_view text, size_t begin, size_t end) noexcept {
  while (end > begin) {
    const size_t before = character_before(text, end);
    if (before < begin || !is_space(character_at(text, before).code)) break;
    end = before;
  }
  return end;
}

size_t find(Budget& budget, std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* hit =
      what.empty() ? text.data() + from
                   : ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  const size_t at = hit == nullptr
                        ? std::string_view::npos
                        : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
  budget.look(what.size() + std::min(at, text.size()) - from);
  return at;
}

size_t find_last(Budget& budget, std::string_view text, std::string_view what) {
  if (what.size() > text.size()) return std::string_view::npos;
  // Most texts are short, or end soon after a match.
  if (text.size() < 256 || what.size() < 16) {
    const size_t at = text.rfind(what);
    budget.look(text.size() - (at == std::string_view::npos ? 0 : at));
    return at;
  }
  size_t last = std::string_view::npos;
  for (size_t at = find(budget, text, what); at != std::string_view::npos;
       at = find(budget, text, what, at + 1)) {
    last = at;
  }
  return last;
}

}  // namespace stemma::jinja
