// A Lexicon turns prompts into words: media items get numbers, so that words are compared as
// memory.
//
// Scopes share the numbers: a number stands for the item's whole identity, and an index keeps its
// scopes apart by itself.
// Threading:  one thread at a time.
// Ownership:  a Text holds references to the items it names, counted here; give them back with
//             release() before it goes. To keep words without a Text, hold() their numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "key/media_table.h"
#include "key/words.h"
#include "stemma/prompt.h"
#include "stemma/result.h"

namespace stemma::sequence {

// A prompt that owns its tokens, items and words. It can be moved but not copied, because its
// references are counted once.
struct Text {
  Text() = default;
  Text(Text&&) noexcept = default;
  // Requires: `this` holds no references.
  Text& operator=(Text&&) noexcept = default;

  std::vector<Token> tokens;
  std::vector<MediaItem> media;
  std::vector<key::MediaSpan> spans;    // Units that are more than a token, ordered.
  std::vector<uint32_t> words;          // Empty without media: then the tokens are the words.
  std::vector<uint32_t> media_numbers;  // One reference each.

  uint32_t length() const noexcept { return static_cast<uint32_t>(tokens.size()); }
  std::span<const uint32_t> all() const noexcept {
    return media.empty() ? std::span<const uint32_t>(tokens) : std::span<const uint32_t>(words);
  }
  Prompt prompt() const noexcept { return {tokens, media}; }
  // The first n positions. Requires n at the end of a unit.
  Prompt prompt(uint32_t n) const noexcept;
  // The largest depth, at most n, that is not inside an item.
  uint32_t floor(uint32_t n) const noexcept { return key::floor_to_unit(spans, n); }
};

class Lexicon {
 public:
  // Replaces the contents of `out`. Requires: `prompt` does not point into `out`. Error:
  // invalid_argument (a value that is no token, an impossible item; the error's value is its
  // index), out_of_memory; `out` is empty then.
  Result<void> read(const Prompt& prompt, Text& out);
  // Appends tokens. Requires: they are not the text's own. Error: invalid_argument (its value is
  // the index), out_of_memory; nothing changed.
  static Result<void> append(std::span<const Token> tokens, Text& text);
  // Forgets positions from n on. Requires n at the end of a unit.
  void cut(Text& text, uint32_t n) noexcept;
  void release(Text& text) noexcept { cut(text, 0); }
  // Copies the first n positions of a text. Requires n at the end of a unit. Error: out_of_memory.
  Result<void> copy(const Text& from, uint32_t n, Text& out) { return read(from.prompt(n), out); }

  // Takes one more reference to each item of the first n positions, and adds it to `numbers`.
  // Requires n at the end of a unit. Error: out_of_memory; nothing changed.
  Result<void> hold(const Text& text, uint32_t n, std::vector<uint32_t>& numbers);
  // Gives the references back, and empties `numbers`.
  void drop(std::vector<uint32_t>& numbers) noexcept;

  uint64_t bytes() const noexcept { return media_.bytes(); }
  uint64_t items() const noexcept { return media_.size(); }

 private:
  key::MediaTable media_;
};

}  // namespace stemma::sequence
