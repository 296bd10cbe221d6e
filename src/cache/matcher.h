// How much of a prompt can be made available: the verified path, and what coverage makes of it.
//
// Threading: find_match() and what it calls run under the cache's lock; the walk it starts from
// may have run without it.
#pragma once

#include <cstdint>
#include <span>

#include "cache/store.h"
#include "stemma/cache.h"
#include "tree/coverage.h"

namespace stemma::cache {

// A path in the tree and the words it was found with.
struct Path {
  CellIndex root = kNoCell;
  const CellIndex* cells = nullptr;  // `whole` cells, then at most one that agrees in part.
  uint32_t whole = 0;
  tree::PrefixTree::Partial partial;
  std::span<const uint32_t> words;  // The prompt's, from position `words_begin` on.
  uint32_t words_begin = 0;

  uint32_t tokens(uint32_t cell_tokens) const noexcept {
    return whole * cell_tokens + partial.words;
  }
  // The cell that holds position `at` of the path, kNoCell if none does.
  CellIndex holding(uint32_t at, uint32_t cell_tokens) const noexcept {
    const uint32_t index = at / cell_tokens;
    if (index < whole) return cells[index];
    return index == whole ? partial.cell : kNoCell;
  }
  // The cell that ends at `boundary` cells; the root for 0.
  CellIndex ending(uint32_t boundary) const noexcept {
    return boundary == 0 ? root : cells[boundary - 1];
  }
};

// What coverage.h asks, answered for one path.
class Present {
 public:
  Present(const Store& store, const Path& path, std::span<const key::MediaSpan> units) noexcept
      : store_(store), path_(path), units_(units) {}

  uint32_t valid_tokens(uint32_t group, uint32_t block) const;
  // The block that covers positions up to `n` inside a block of the group, as a copy source.
  uint32_t part_block(uint32_t group, uint32_t n) const;
  uint32_t whole_blocks(uint32_t group, uint32_t limit) const;
  uint32_t checkpoint_at_most(uint32_t group, uint32_t depth) const;
  uint32_t unit_floor(uint32_t depth) const { return key::floor_to_unit(units_, depth); }

 private:
  // The deepest cell of the path inside that block at which the block is entered; `cells`: how many
  // cells of the block come before it.
  CellIndex deepest_entry(const Group& group, uint32_t block, uint32_t& cells) const;

  const Store& store_;
  const Path& path_;
  std::span<const key::MediaSpan> units_;
};

// Where anchors at exactly `depth` of the path hang, kNoCell if nowhere.
CellIndex anchor_cell(const Store& store, const Path& path, uint32_t depth);

// The blocks of window and recurrent groups without which [0, n) of the path cannot be served, nor,
// by windows, [0, n - 1). Requires n servable.
void loose_blocks(const Store& store, const Path& path, uint32_t n, const Present& present,
                  std::vector<Store::LooseBlock>& out);

struct Match {
  uint32_t n = 0;  // Positions to reuse.
  Logits logits;   // Found at the whole prompt, and n is all of it.
  Report report;   // All but the outcome of copies.
};

// Decides n for a prompt whose path was found. `length`: positions of the prompt.
Match find_match(Store& store, const Path& path, std::span<const key::MediaSpan> spans,
                 uint32_t length, const LookupOptions& options, bool scope_known);

// Sets outcome and reason of a report from its numbers, after execution too.
void conclude(Report& report, uint32_t reusable);

}  // namespace stemma::cache
