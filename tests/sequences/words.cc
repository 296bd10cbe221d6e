#include "sequences/words.h"

#include <algorithm>

#include "base/random.h"

namespace stemma::schedules {

std::vector<Unit> media_units(const Text& text) {
  std::vector<Unit> units;
  for (const MediaItem& item : text.media) {
    const Unit unit{item.offset, item.offset + item.length};
    if (!units.empty() && unit.begin < units.back().end) {
      units.back().end = std::max(units.back().end, unit.end);
    } else {
      units.push_back(unit);
    }
  }
  return units;
}

bool inside_unit(const Text& text, uint32_t n) {
  return std::ranges::any_of(media_units(text),
                             [&](const Unit& unit) { return unit.begin < n && n < unit.end; });
}

uint32_t before_last_units(const Text& text, uint32_t count) {
  const std::vector<Unit> units = media_units(text);
  uint32_t end = text.size();
  for (; count > 0 && end > 0; --count) {
    const auto unit = std::ranges::find(units, end, &Unit::end);
    end = unit == units.end() ? end - 1 : unit->begin;
  }
  return end;
}

uint32_t items_beyond(const Text& text, uint32_t n) {
  return static_cast<uint32_t>(std::ranges::count_if(
      text.media, [&](const MediaItem& item) { return item.offset + item.length > n; }));
}

Token engine_word(uint32_t scope, Token token) {
  return static_cast<Token>(base::mix(scope + 1, token));
}

std::vector<Token> engine_words(uint32_t scope, const Text& text) {
  std::vector<Token> words;
  words.reserve(text.size());
  for (const Token token : text.tokens) words.push_back(engine_word(scope, token));
  for (const Unit& unit : media_units(text)) {
    uint64_t content = base::mix(scope + 1, unit.end - unit.begin);
    for (const MediaItem& item : text.media) {
      if (item.offset < unit.begin || item.offset >= unit.end) continue;
      content =
          base::mix(content, base::mix(static_cast<uint64_t>(item.kind), item.causal ? 1 : 0));
      content = base::mix(content, base::mix(item.offset - unit.begin, item.length));
      for (const uint8_t byte : item.digest) content = base::mix(content, byte);
    }
    for (uint32_t p = unit.begin; p < unit.end; ++p) {
      words[p] = static_cast<Token>(base::mix(content, p - unit.begin));
    }
  }
  return words;
}

std::array<float, kLogits> logits_after(std::span<const Token> engine_words) {
  uint64_t hash = 1;
  for (const Token word : engine_words) hash = base::mix(hash, word);
  std::array<float, kLogits> logits{};
  for (uint32_t i = 0; i < kLogits; ++i) {
    logits[i] = static_cast<float>(base::mix(hash, i) & 0xFF'FFFFU);
  }
  return logits;
}

}  // namespace stemma::schedules
