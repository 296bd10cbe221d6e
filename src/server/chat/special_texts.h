// SpecialTexts finds where what somebody wrote spells a special token of the model.
//
// It does not ask the tokenizer, which tells the longest of several only, and nothing of what would come out
// once that one is gone: every place is looked at.
//
// Invariant:  a text from which the stretches are taken, and which is cut where they were, spells no special
//             token that has a byte of [begin, end).
// Threading:  immutable; thread-safe.
// Cost:       made once, in a pass over the vocabulary. A search takes a few steps a byte; at worst as many
//             as the longest text has bytes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language_model.h"

namespace stemma::server {

class SpecialTexts {
 public:
  explicit SpecialTexts(const engine::LanguageModel& model);

  struct Stretch {
    size_t begin;
    size_t end;
    bool operator==(const Stretch&) const = default;
  };
  // The parts of [begin, end) of `text` that belong to the text of a special token, also to one that
  // reaches beyond on either side. Ascending; those that touch are one.
  std::vector<Stretch> within(std::string_view text, size_t begin, size_t end) const;

  // Where to cut [begin, end) of `text` so that no piece has the whole text of a special token: behind the
  // first character of each. Nowhere for tokenizers that tell text from special tokens by themselves; some,
  // which look for the longest word, do not. Ascending.
  std::vector<size_t> cuts(std::string_view text, size_t begin, size_t end) const;

 private:
  // Bytes of the longest one that `text` begins with; 0: of none.
  size_t longest_at(std::string_view text) const;

  std::vector<std::string> texts_;  // Ascending, without doubles.
  std::array<bool, 256> begins_{};  // Whether some text begins with the byte.
  size_t longest_ = 0;
  bool slip_through_ =
      false;  // The tokenizer makes special tokens of text that it is told is none.
};

}  // namespace stemma::server
