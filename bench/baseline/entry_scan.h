// Baseline: a list of cached prompts, each with its own tokens and blocks; a lookup compares the
// prompt with every one of them and takes the longest common prefix of whole blocks.
// Threading: one thread at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "bench/support.h"

namespace stemma::bench {

class EntryScan {
 public:
  void add(Tokens tokens, std::vector<BlockId> blocks) {
    entries_.push_back({std::move(tokens), std::move(blocks), 0});
  }

  // Writes the blocks of the longest match and returns their number.
  size_t hit(std::span<const Token> prompt, std::span<BlockId> table) {
    Entry* best = nullptr;
    size_t best_blocks = 0;
    for (Entry& entry : entries_) {
      const size_t blocks = common_blocks(prompt, entry.tokens);
      if (blocks > best_blocks) {
        best = &entry;
        best_blocks = blocks;
      }
    }
    if (best == nullptr) return 0;
    ++best->users;
    std::copy_n(best->blocks.begin(), best_blocks, table.begin());
    keep(table[0]);
    --best->users;
    return best_blocks;
  }

 private:
  struct Entry {
    Tokens tokens;
    std::vector<BlockId> blocks;
    uint32_t users;
  };

  static size_t common_blocks(std::span<const Token> a, std::span<const Token> b) {
    const size_t blocks = std::min(a.size(), b.size()) / kBlockTokens;
    constexpr size_t kBytes = kBlockTokens * sizeof(Token);
    for (size_t i = 0; i < blocks; ++i) {
      if (std::memcmp(&a[i * kBlockTokens], &b[i * kBlockTokens], kBytes) != 0) return i;
    }
    return blocks;
  }

  std::vector<Entry> entries_;
};

}  // namespace stemma::bench
