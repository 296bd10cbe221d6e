// How much of a prompt can be reused: applies the coverage rules to its verified path.
//
// Threading: find_match() and what it calls run under the cache's lock; the walk it starts from
// may have run without it.
#pragma once

#include <cstdint>
#include <span>

#include "cache/books/books.h"
#include "stemma/cache.h"
#include "tree/coverage.h"

namespace stemma::cache {

// A path in the tree and the words it was found with.
struct Path {
  CellIndex root = kNoCell;
  const CellIndex* cells = nullptr;  // `whole` cells, then at most one that matches in part.
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

// Answers the questions of coverage.h for one path.
class Present {
 public:
  Present(const Books& books, const Path& path, std::span<const key::MediaSpan> units) noexcept
      : books_(books), path_(path), units_(units) {}

  uint32_t valid_tokens(uint32_t group, uint32_t block) const;
  // The block that covers positions up to `n` inside a block of the group, as a copy source.
  uint32_t part_block(uint32_t group, uint32_t n) const;
  uint32_t whole_blocks(uint32_t group, uint32_t limit) const;
  uint32_t checkpoint_at_most(uint32_t group, uint32_t depth) const;
  uint32_t unit_floor(uint32_t depth) const { return key::floor_to_unit(units_, depth); }

 private:
  // The deepest cell of the path, within that block, at which the block is entered. Sets `cells` to
  // the number of the block's cells before it.
  CellIndex deepest_entry(const Group& group, uint32_t block, uint32_t& cells) const;

  const Books& books_;
  const Path& path_;
  std::span<const key::MediaSpan> units_;
};

// The cell that carries the anchors at exactly `depth` of the path, or kNoCell.
CellIndex anchor_cell(const Books& books, const Path& path, uint32_t depth);

// Collects the blocks of window and recurrent groups that are needed to serve [0, n) of the path,
// and the window blocks needed for [0, n - 1). Requires n servable.
void loose_blocks(const Books& books, const Path& path, uint32_t n, const Present& present,
                  std::vector<LooseBlock>& out);

struct Match {
  uint32_t n = 0;  // Positions to reuse.
  Logits logits;   // Set if n is the whole prompt and logits are cached there.
  Report report;   // Complete except for the outcome of copies.
};

// Decides n for a prompt whose path was found. `length` is the prompt's number of positions.
Match find_match(Books& books, const Path& path, std::span<const key::MediaSpan> spans,
                 uint32_t length, const LookupOptions& options, bool scope_known);

// Sets a report's outcome and reason from its numbers. Also used after execution.
void conclude(Report& report, uint32_t reusable);

}  // namespace stemma::cache
