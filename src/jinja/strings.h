// What Python's strings can do, for the filters and the methods that share it. Marks stay with bytes.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "jinja/value.h"

namespace stemma::jinja {

enum class Side : uint8_t { left, right, both };

// Without the characters of `characters` at its ends; null: without space.
Value strip(Budget& budget, const TextPtr& text, const Text* characters, Side side);
// Pieces between separators; null: between runs of space. At most `limit` cuts; negative: all.
std::vector<Value> split(Budget& budget, const TextPtr& text, const Text* separator, int64_t limit);
std::vector<Value> split_right(Budget& budget, const TextPtr& text, const Text* separator,
                               int64_t limit);
std::vector<Value> split_lines(Budget& budget, const TextPtr& text, bool keep_ends);
Value replace(Budget& budget, const Text& text, const Text& what, const Text& with, int64_t limit);
// Filled up to `width` characters; Side says where the text stands.
Value pad(Budget& budget, const TextPtr& text, int64_t width, const Text& fill, Side side);

}  // namespace stemma::jinja
