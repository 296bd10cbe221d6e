#include "jinja/strings.h"

#include <algorithm>

#include "jinja/budget.h"

namespace stemma::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_line_end(uint32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

void put(Budget& budget, std::vector<Value>& pieces, const TextPtr& text, size_t begin,
         size_t end) {
  budget.step();
  budget.bytes(sizeof(Value));
  pieces.push_back(cut(budget, text, begin, end));
}

std::vector<Value> split_at_space(Budget& budget, const TextPtr& text, int64_t limit) {
  const std::string_view view = text->view();
  std::vector<Value> pieces;
  budget.read(view.size());
  size_t at = skip_space(view, 0);
  while (at < view.size()) {
    size_t end = at;
    while (end < view.size()) {
      const Character c = character_at(view, end);
      if (is_space(c.code)) break;
      end += c.bytes;
    }
    if (limit == 0) end = skip_space_back(view, at, view.size());
    put(budget, pieces, text, at, end);
    if (limit-- == 0) break;
    at = skip_space(view, end);
  }
  return pieces;
}

std::vector<Value> split_right_at_space(Budget& budget, const TextPtr& text, int64_t limit) {
  const std::string_view view = text->view();
  std::vector<Value> pieces;
  budget.read(view.size());
  size_t end = skip_space_back(view, 0, view.size());
  while (end > 0) {
    size_t at = end;
    while (at > 0) {
      const size_t before = character_before(view, at);
      if (is_space(character_at(view, before).code)) break;
      at = before;
    }
    if (limit == 0) at = 0;
    put(budget, pieces, text, at, end);
    if (limit-- == 0) break;
    end = skip_space_back(view, 0, at);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

Value strip(Budget& budget, const TextPtr& text, const Text* characters, Side side) {
  const std::string_view view = text->view();
  const auto goes = [&](size_t at) {
    const Character c = character_at(view, at);
    if (characters == nullptr) return is_space(c.code);
    budget.look(characters->bytes.size());
    const std::string_view bytes = view.substr(at, c.bytes);
    for (size_t i = 0; i < characters->bytes.size();) {
      const uint32_t size = character_at(characters->bytes, i).bytes;
      if (characters->view().substr(i, size) == bytes) return true;
      i += size;
    }
    return false;
  };
  budget.step();
  size_t begin = 0;
  size_t end = view.size();
  while (side != Side::right && begin < end && goes(begin))
    begin += character_at(view, begin).bytes;
  while (side != Side::left && end > begin) {
    const size_t before = character_before(view, end);
    if (before < begin || !goes(before)) break;
    end = before;
  }
  return cut(budget, text, begin, end);
}

std::vector<Value> split(Budget& budget, const TextPtr& text, const Text* separator,
                         int64_t limit) {
  if (separator == nullptr) return split_at_space(budget, text, limit);
  if (separator->bytes.empty()) fail("a string cannot be split at nothing");
  std::vector<Value> pieces;
  size_t begin = 0;
  for (; limit != 0; --limit) {
    const size_t at = find(budget, text->view(), separator->view(), begin);
    if (at == kNowhere) break;
    put(budget, pieces, text, begin, at);
    begin = at + separator->bytes.size();
  }
  put(budget, pieces, text, begin, text->bytes.size());
  return pieces;
}

std::vector<Value> split_right(Budget& budget, const TextPtr& text, const Text* separator,
                               int64_t limit) {
  if (separator == nullptr) return split_right_at_space(budget, text, limit);
  if (separator->bytes.empty()) fail("a string cannot be split at nothing");
  std::vector<Value> pieces;
  size_t end = text->bytes.size();
  for (; limit != 0; --limit) {
    const size_t at = find_last(budget, text->view().substr(0, end), separator->view());
    if (at == kNowhere) break;
    put(budget, pieces, text, at + separator->bytes.size(), end);
    end = at;
  }
  put(budget, pieces, text, 0, end);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<Value> split_lines(Budget& budget, const TextPtr& text, bool keep_ends) {
  const std::string_view view = text->view();
  std::vector<Value> lines;
  budget.read(view.size());
  size_t begin = 0;
  for (size_t at = 0; at < view.size();) {
    const Character c = character_at(view, at);
    size_t next = at + c.bytes;
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < view.size() && view[next] == '\n') ++next;
      put(budget, lines, text, begin, keep_ends ? next : at);
      begin = next;
    }
    at = next;
  }
  if (begin < view.size()) put(budget, lines, text, begin, view.size());
  return lines;
}

Value replace(Budget& budget, const Text& text, const Text& what, const Text& with, int64_t limit) {
  TextBuilder out(budget);
  size_t begin = 0;
  if (what.bytes.empty()) {
    // Before each character, and at the end.
    for (; limit != 0; --limit) {
      budget.step();
      out.add(with);
      if (begin == text.bytes.size()) break;
      const size_t end = begin + character_at(text.bytes, begin).bytes;
      out.add(text, begin, end);
      begin = end;
    }
  } else {
    for (; limit != 0; --limit) {
      const size_t at = find(budget, text.view(), what.view(), begin);
      if (at == kNowhere) break;
      out.add(text, begin, at);
      out.add(with);
      begin = at + what.bytes.size();
    }
  }
  out.add(text, begin, text.bytes.size());
  budget.bytes(sizeof(Text));
  return Value::of(out.take());
}

Value pad(Budget& budget, const TextPtr& text, int64_t width, const Text& fill, Side side) {
  if (count_characters(fill.bytes) != 1) fail("what fills a string up is one character");
  const auto size = static_cast<int64_t>(count_characters(text->bytes));
  budget.read(text->bytes.size());
  if (width <= size) return Value::of(text);
  const int64_t missing = width - size;
  budget.steps(static_cast<uint64_t>(missing));
  // If the width is odd too, Python puts the odd space on the left.
  const int64_t left = side == Side::left    ? 0
                       : side == Side::right ? missing
                                             : missing / 2 + (missing & width & 1);
  TextBuilder out(budget);
  for (int64_t i = 0; i < left; ++i) out.add(fill);
  out.add(*text);
  for (int64_t i = left; i < missing; ++i) out.add(fill);
  budget.bytes(sizeof(Text));
  return Value::of(out.take());
}

}  // namespace stemma::jinja
