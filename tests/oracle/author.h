// An Author writes prompts the way users do: system prompts in common, conversations that go on,
// the same question again, the same beginning with another end, pictures in the middle.
// Threading: one thread at a time; authors of one seed know the same system prompts.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/paged/random.h"
#include "engine/paged/text.h"

namespace stemma::oracle {

class Author {
 public:
  struct Options {
    uint64_t family_seed = 1;  // Of what all authors of a world have in common.
    uint64_t seed = 1;
    uint32_t longest_tokens = 56;
    bool media = false;
  };
  explicit Author(const Options& options);

  paged::Text write();
  // A text that was read to its end; somebody may go on from here.
  void remember(const paged::Text& text);
  // The beginning of a text that was written before, cut at a unit's border.
  paged::Text beginning();

 private:
  paged::Text piece(paged::Random& random, uint32_t longest) const;
  void append(paged::Text& text, const paged::Text& more) const;
  void cut(paged::Text& text, uint32_t n) const;
  // Makes an item another one that differs from it in one thing only.
  void exchange(paged::Text& text, size_t index);

  Options options_;
  paged::Random random_;
  std::vector<paged::Text> systems_;
  std::vector<paged::Text> turns_;
  std::deque<paged::Text> written_;
  std::deque<paged::Text> finished_;
};

}  // namespace stemma::oracle
