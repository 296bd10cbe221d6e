#include "engine/paged/text.h"

#include <algorithm>

namespace stemma::paged {
namespace {

struct Unit {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool causal = true;
};

// The media unit that holds `position`, or an empty one.
Unit unit_at(const Text& text, uint32_t position) noexcept {
  Unit unit;
  for (const MediaItem& item : text.media) {
    if (item.offset >= unit.end) {
      if (unit.end > position || item.offset > position) break;
      unit = {item.offset, item.offset, true};
    }
    unit.end = std::max(unit.end, item.offset + item.length);
    unit.causal = unit.causal && item.causal;
  }
  return unit.begin <= position && position < unit.end ? unit : Unit{};
}

}  // namespace

uint32_t sees_until(const Text& text, uint32_t position) noexcept {
  const Unit unit = unit_at(text, position);
  return unit.causal ? position + 1 : unit.end;
}

uint32_t unit_ceiling(const Text& text, uint32_t n) noexcept {
  const Unit unit = unit_at(text, n);
  return unit.begin < n ? std::max(n, unit.end) : n;
}

}  // namespace stemma::paged
