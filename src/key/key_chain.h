// KeyChain: the content keys of one prompt at any depth, on a grid of block_words.
//
// At a depth on the grid, the key is that of the chain up to there. At other depths, the chain ends
// with a partly filled block. So with one grid, equal prompts have equal keys at equal depths, in
// whatever order the keys are computed.
// Threading:  one thread at a time.
// Ownership:  borrows the words, the spans and what they refer to.
// Cost:       at() hashes the blocks from the last requested depth on, or from the beginning if the
//             new depth is smaller; no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "key/content_key.h"
#include "stemma/key.h"
#include "stemma/scope.h"

namespace stemma::key {

class KeyChain {
 public:
  // Requires: 1 <= block_words <= kMaxBlockWords; `spans` from find_media_spans(); every word
  // outside them is a token. Words inside them are ignored.
  KeyChain(const Scope& scope, std::span<const uint32_t> words, std::span<const MediaSpan> spans,
           uint32_t block_words) noexcept;

  // The key of the first `depth` words. Requires 1 <= depth <= words.size().
  ContentKey at(uint32_t depth) noexcept;
  // The key of the prefix that `depth` goes on from: the last depth of the grid before it, 0
  // included. Requires 1 <= depth <= words.size(). Costs nothing right after at(depth).
  ContentKey parent_of(uint32_t depth) noexcept;

 private:
  ContentKey step(const ContentKey& parent, uint32_t begin, uint32_t end) noexcept;

  std::span<const uint32_t> words_;
  std::span<const MediaSpan> spans_;
  uint32_t block_words_;
  ContentKey root_;
  ContentKey before_;     // The key before last_.
  ContentKey last_;       // The key at depth reached_.
  uint32_t reached_ = 0;  // A multiple of block_words_.
  std::array<MediaRun, kMaxBlockWords> room_;
};

}  // namespace stemma::key
