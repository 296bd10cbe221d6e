// SpecialTexts finds where a user's text spells a special token of the model.
//
// It does not ask the tokenizer: of several overlapping special tokens that reports only the
// longest, and not those that appear once it is removed. SpecialTexts examines every place.
//
// Invariant:  if the stretches are removed from a text, and it is cut where they were, it spells no
//             special token that has a byte of [begin, end).
// Threading:  immutable; thread-safe.
// Cost:       made once, in a pass over the vocabulary. A search takes a few steps a byte; at worst
//             as many as the longest text has bytes.
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
  // Returns the parts of [begin, end) of `text` that belong to the text of a special token, even if
  // that reaches beyond either side. Ascending; touching parts are merged.
  std::vector<Stretch> within(std::string_view text, size_t begin, size_t end) const;

  // Returns where to cut [begin, end) of `text` so that no piece has the whole text of a special
  // token: behind the first character of each. Ascending. Empty for tokenizers that tell text from
  // special tokens themselves; some that look for the longest word do not.
  std::vector<size_t> cuts(std::string_view text, size_t begin, size_t end) const;

 private:
  // The size of the longest special text that `text` begins with; 0: none.
  size_t longest_at(std::string_view text) const;

  std::vector<std::string> texts_;  // Ascending, without doubles.
  std::array<bool, 256> begins_{};  // Whether some text begins with the byte.
  size_t longest_ = 0;
  bool slip_through_ = false;  // The tokenizer makes special tokens of text even when told not to.
};

}  // namespace stemma::server
