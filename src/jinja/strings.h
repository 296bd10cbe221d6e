// Operations of Python's strings that filters and methods share. Bytes keep their marks.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "jinja/value.h"

namespace stemma::jinja {

enum class Side : uint8_t { left, right, both };

// Removes the given characters from the ends; null: removes space.
Value strip(Budget& budget, const TextPtr& text, const Text* characters, Side side);
// The pieces between separators; null: between runs of space. At most `limit` cuts; negative: all.
std::vector<Value> split(Budget& budget, const TextPtr& text, const Text* separator, int64_t limit);
std::vector<Value> split_right(Budget& budget, const TextPtr& text, const Text* separator,
                               int64_t limit);
std::vector<Value> split_lines(Budget& budget, const TextPtr& text, bool keep_ends);
Value replace(Budget& budget, const Text& text, const Text& what, const Text& with, int64_t limit);
// Pads to `width` characters; Side is where the text goes.
Value pad(Budget& budget, const TextPtr& text, int64_t width, const Text& fill, Side side);

}  // namespace stemma::jinja
