// Baseline: finds the sibling block that shares most leading tokens by looking at all of them.
// Threading: immutable after filling.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "bench/support.h"

namespace stemma::bench {

class SiblingScan {
 public:
  void add(std::span<const Token> block) {
    tokens_.insert(tokens_.end(), block.begin(), block.end());
  }

  // The largest number of leading tokens any sibling shares with `query`.
  uint32_t longest_match(std::span<const Token> query) const {
    const auto length = std::min(static_cast<uint32_t>(query.size()), kBlockTokens);
    uint32_t best = 0;
    for (size_t at = 0; at < tokens_.size(); at += kBlockTokens) {
      uint32_t shared = 0;
      while (shared < length && tokens_[at + shared] == query[shared]) ++shared;
      best = std::max(best, shared);
    }
    return best;
  }

 private:
  Tokens tokens_;
};

}  // namespace stemma::bench
