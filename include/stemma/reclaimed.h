// Reclaimed: blocks that a cache has given up and that nobody writes yet, so that what is in them can still
// be saved. What a lease evicts for itself is overwritten at once; who wants to write back calls
// PagedCache::reclaim() ahead of it.
//
//   reclaim(positions, most) --> blocks: no longer found, not yet free --> read them --> let it go: free
//
// Invariant:  as long as this lives, no lease gets its blocks. They are whole: part-blocks, tails, logits and
//             checkpoints between the borders of blocks are not among them.
// Threading:  one thread at a time.
// Ownership:  keeps the cache's innards alive, as a lease does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/prompt.h"

namespace stemma {

namespace cache {
class Shared;
}  // namespace cache

class PagedCache;

class Reclaimed {
 public:
  struct Block {
    GroupIndex group = 0;
    BlockId block = kNoBlock;
    // Its positions. Of a recurrent group: the state at `end`, and begin == end.
    uint32_t begin = 0;
    uint32_t end = 0;
    // Of the prefix that ends with it, in steps of its group's blocks; of a recurrent group, of the largest
    // blocks that any group has (16 where there are none).
    ContentKey key{};
    uint32_t path = 0;  // Which of the paths that went it belongs to.
  };

  Reclaimed() noexcept = default;
  Reclaimed(Reclaimed&& other) noexcept;
  Reclaimed& operator=(Reclaimed&& other) noexcept;
  ~Reclaimed();

  // Of each path the deepest first.
  std::span<const Block> blocks() const noexcept { return blocks_; }
  // How much went, what is not among the blocks included. 0: nothing had to go, or nothing could.
  uint32_t evicted() const noexcept { return evicted_; }
  // The words under a block; none where media stand on its path.
  std::span<const Token> words(const Block& block) const noexcept;

 private:
  friend class PagedCache;
  friend class cache::Shared;

  cache::Shared* shared_ = nullptr;  // Null: holds nothing.
  uint32_t evicted_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::vector<Token>> paths_;
};

}  // namespace stemma
