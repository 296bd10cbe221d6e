#include "jinja/letter_case.h"

#include <algorithm>
#include <array>
#include <span>

#include "jinja/budget.h"
#include "jinja/letter_case_table.h"

namespace stemma::jinja {
namespace {

constexpr uint32_t kSharpS = 0xDF;
constexpr uint32_t kDottedI = 0x130;

uint32_t moved(std::span<const CaseRun> runs, uint32_t code) noexcept {
  const auto run = std::lower_bound(runs.begin(), runs.end(), code,
                                    [](const CaseRun& r, uint32_t c) { return r.last < c; });
  if (run == runs.end() || code < run->first || (code - run->first) % run->stride != 0) return code;
  return static_cast<uint32_t>(static_cast<int32_t>(code) + run->delta);
}

}  // namespace

uint32_t to_upper(uint32_t code) noexcept {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return code > 0x10FFFF ? code : moved(kToUpper, code);
}
uint32_t to_lower(uint32_t code) noexcept {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return code > 0x10FFFF ? code : moved(kToLower, code);
}
bool is_upper(uint32_t code) noexcept { return code == kDottedI || to_lower(code) != code; }
bool is_lower(uint32_t code) noexcept { return code == kSharpS || to_upper(code) != code; }

bool is_letter(uint32_t code) noexcept {
  if (is_upper(code) || is_lower(code)) return true;
  if (code < 0x370 || code > 0x3FFFF) return code == 0xAA || code == 0xBA;
  const bool symbols = (code >= 0x2000 && code < 0x2C00) || (code >= 0x3000 && code < 0x3005) ||
                       (code >= 0x3008 && code < 0x3021) || (code >= 0xD800 && code < 0xF900) ||
                       (code >= 0xFF00 && code < 0xFF21) || (code >= 0x1CF50 && code < 0x1D2C0) ||
                       (code >= 0x1D300 && code < 0x1D360) || (code >= 0x1F000 && code < 0x20000);
  return !symbols && !is_space(code);
}

Value change_case(Budget& budget, const TextPtr& text, Casing casing) {
  TextBuilder out(budget);
  Origins origins(*text);
  bool inside = false;  // Inside a word; for capitalize, inside the text.
  for (size_t at = 0; at < text->bytes.size();) {
    const Character c = character_at(text->bytes, at);
    const bool upper =
        casing == Casing::upper ||
        (casing == Casing::swap ? is_lower(c.code) : casing != Casing::lower && !inside);
    const Origin origin = origins.at(at);
    std::array<char, 4> room{};
    if (c.code == kNotACharacter) {
      out.add(text->view().substr(at, c.bytes), origin);
    } else if (c.code == kSharpS && upper) {
      out.add(casing == Casing::title || casing == Casing::capitalize ? "Ss" : "SS", origin);
    } else if (c.code == kDottedI && !upper) {
      out.add("i\u0307", origin);
    } else {
      out.add(encode_utf8(upper ? to_upper(c.code) : to_lower(c.code), room), origin);
    }
    inside = casing == Casing::capitalize || is_upper(c.code) || is_lower(c.code);
    at += c.bytes;
  }
  budget.bytes(sizeof(Text));
  budget.read(text->bytes.size());
  return Value::of(out.take());
}

}  // namespace stemma::jinja
