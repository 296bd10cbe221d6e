// Reclaimed: blocks that a cache has evicted but that nobody overwrites yet, so that their contents
// can still be saved. Blocks that a lease evicts for itself are overwritten at once. To save blocks
// before that happens, call PagedCache::reclaim() ahead of time.
//
//   reclaim(positions, most) --> blocks: not found, not yet free --> read them --> destroy: free
//
// Invariant:  while this lives, no lease gets its blocks. It has whole blocks only: no part-blocks,
//             tails, logits, or checkpoints between block borders.
// Threading:  one thread at a time.
// Ownership:  keeps the cache's internals alive, as a lease does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/prompt.h"

namespace stemma {

namespace cache {
class Core;
}  // namespace cache

class PagedCache;

class Reclaimed {
 public:
  struct Block {
    GroupIndex group = 0;
    BlockId block = kNoBlock;
    // Its positions. For a recurrent group: the state at `end`, with begin == end.
    uint32_t begin = 0;
    uint32_t end = 0;
    // The key of the prefix that ends with this block. The key's steps are the group's blocks; for
    // a recurrent group, the largest blocks of any group (16 positions if there are none).
    ContentKey key{};
    uint32_t path = 0;  // The number of its path among the evicted paths.
  };

  Reclaimed() noexcept = default;
  Reclaimed(Reclaimed&& other) noexcept;
  Reclaimed& operator=(Reclaimed&& other) noexcept;
  ~Reclaimed();

  // Within each path the deepest block comes first.
  std::span<const Block> blocks() const noexcept { return blocks_; }
  // How many were evicted, including those that are not in blocks(). 0: nothing had to be evicted,
  // or nothing could be.
  uint32_t evicted() const noexcept { return evicted_; }
  // The words of a block; empty if its path has media.
  std::span<const Token> words(const Block& block) const noexcept;

 private:
  friend class PagedCache;
  friend class cache::Core;

  cache::Core* core_ = nullptr;  // Null: holds nothing.
  uint32_t evicted_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::vector<Token>> paths_;
};

}  // namespace stemma
