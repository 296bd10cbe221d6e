#include "constrain/code_points.h"

#include <algorithm>
#include <array>
#include <map>

namespace stemma::constrain {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

std::string utf8_of(uint32_t code_point) {
  std::string out;
  append_utf8(out, code_point);
  return out;
}

// Byte sequences in which each byte varies independently of the others. Sequences with equal tails
// are merged: their first bytes form one set.
class Sequences {
 public:
  // Adds [first, last], whose code points all have the same number of bytes in UTF-8. Splits the
  // range until every byte after the first varying one takes all its values.
  void add(uint32_t first, uint32_t last) {
    const size_t bytes = utf8_of(first).size();
    for (uint32_t i = 1; i < bytes; ++i) {
      const uint32_t low_bits = (1U << (6 * i)) - 1;
      if ((first & ~low_bits) == (last & ~low_bits)) continue;
      if ((first & low_bits) != 0) {
        add(first, first | low_bits);
        add((first | low_bits) + 1, last);
        return;
      }
      if ((last & low_bits) != low_bits) {
        add(first, (last & ~low_bits) - 1);
        add(last & ~low_bits, last);
        return;
      }
    }
    const std::string low = utf8_of(first);
    const std::string high = utf8_of(last);
    const auto set_at = [&](size_t i) {
      return ByteSet::range(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]));
    };
    std::vector<ByteSet> tail;
    for (size_t i = 1; i < bytes; ++i) tail.push_back(set_at(i));
    ByteSet& lead = leads_[tail];
    lead = lead | set_at(0);
  }

  Expr expression(GrammarBuilder& build) const {
    std::vector<Expr> choices;
    for (const auto& [tail, lead] : leads_) {
      std::vector<Expr> parts = {build.byte(lead)};
      for (const ByteSet& set : tail) parts.push_back(build.byte(set));
      choices.push_back(build.sequence(parts));
    }
    return build.either(choices);
  }

 private:
  std::map<std::vector<ByteSet>, ByteSet> leads_;
};

}  // namespace

CodePointSet CodePointSet::all() { return of({{0, kLast}}); }

CodePointSet CodePointSet::of(std::initializer_list<Range> ranges) {
  CodePointSet set;
  set.ranges_ = ranges;
  set.tidy();
  return set;
}

void CodePointSet::add(uint32_t first, uint32_t last) {
  ranges_.push_back({first, last});
  tidy();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  tidy();
}

void CodePointSet::tidy() {
  std::vector<Range> whole;
  for (const Range& range : ranges_) {
    if (range.first > range.last || range.first > kLast) continue;
    if (range.first < kFirstSurrogate) {
      whole.push_back({range.first, std::min(range.last, kFirstSurrogate - 1)});
    }
    if (range.last > kLastSurrogate) {
      whole.push_back({std::max(range.first, kLastSurrogate + 1), std::min(range.last, kLast)});
    }
  }
  std::sort(whole.begin(), whole.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : whole) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::complement() const {
  CodePointSet set;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) set.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) set.ranges_.push_back({next, kLast});
  set.tidy();
  return set;
}

CodePointSet CodePointSet::intersection(const CodePointSet& other) const {
  CodePointSet set = complement();
  set.add(other.complement());
  return set.complement();
}

bool CodePointSet::has(uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return code_point >= range.first && code_point <= range.last;
  });
}

void append_utf8(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6U);
    put(0x80 | (c & 63U));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12U);
    put(0x80 | (c >> 6U & 63U));
    put(0x80 | (c & 63U));
  } else {
    put(0xF0 | c >> 18U);
    put(0x80 | (c >> 12U & 63U));
    put(0x80 | (c >> 6U & 63U));
    put(0x80 | (c & 63U));
  }
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const size_t bytes = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  constexpr uint32_t kNone = CodePointSet::kLast + 1;
  if (at + bytes > text.size() || (first >= 0x80 && first < 0xC2)) return kNone;
  uint32_t value = bytes == 1 ? first : first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if ((byte & 0xC0U) != 0x80) return kNone;
    value = value << 6U | (byte & 63U);
  }
  std::string again;
  append_utf8(again, value);
  const bool surrogate = value >= kFirstSurrogate && value <= kLastSurrogate;
  if (again != text.substr(at, bytes) || surrogate || value > CodePointSet::kLast) return kNone;
  at += bytes;
  return value;
}

Expr one_of(GrammarBuilder& build, const CodePointSet& set) {
  Sequences sequences;
  for (const CodePointSet::Range& range : set.ranges()) {
    uint32_t first = range.first;
    for (const uint32_t end : {0x7FU, 0x7FFU, 0xFFFFU, CodePointSet::kLast}) {
      if (first > end || first > range.last) continue;
      const uint32_t last = std::min(range.last, end);
      sequences.add(first, last);
      first = last + 1;
    }
  }
  return sequences.expression(build);
}

Expr one_of_json(GrammarBuilder& build, const CodePointSet& set) {
  static const CodePointSet kPlain =
      CodePointSet::of({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, CodePointSet::kLast}});
  std::vector<Expr> choices;
  if (const CodePointSet plain = set.intersection(kPlain); !plain.empty()) {
    choices.push_back(one_of(build, plain));
  }
  constexpr std::array<std::pair<char, char>, 7> kShort = {
      {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};
  ByteSet letters;
  for (const auto& [code_point, letter] : kShort) {
    if (set.has(static_cast<uint8_t>(code_point))) letters.add(static_cast<uint8_t>(letter));
  }
  if (!letters.empty()) choices.push_back(build.sequence({build.text("\\"), build.byte(letters)}));
  // Control characters without a short escape: \u00XX, grouped by their first digit.
  for (uint32_t high = 0; high < 2; ++high) {
    ByteSet low;
    for (uint32_t digit = 0; digit < 16; ++digit) {
      const uint32_t code_point = high << 4U | digit;
      const bool is_short = std::any_of(kShort.begin(), kShort.end(), [&](const auto& pair) {
        return static_cast<uint8_t>(pair.first) == code_point;
      });
      if (is_short || !set.has(code_point)) continue;
      low.add(static_cast<uint8_t>("0123456789abcdef"[digit]));
    }
    if (low.empty()) continue;
    choices.push_back(
        build.sequence({build.text(high == 0 ? "\\u000" : "\\u001"), build.byte(low)}));
  }
  return build.either(choices);
}

}  // namespace stemma::constrain
