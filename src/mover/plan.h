// Turns a request into pieces and steps, the form in which movers carry it out.
//
// A step is one or more layers that arrive together and share a gate. Pieces are in the order of
// steps; in a step, in the order of items.
//
// Invariant:  every byte of a block is in exactly one piece (of a packed block: every byte that
//             pages have). A piece is in one host piece of the caller, and not larger than `most`.
// Threading:  pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mover/layout.h"
#include "stemma/result.h"

namespace stemma::mover {

struct HostPiece {
  uint8_t* data;
  uint64_t bytes;
};

// One block of a load or a store.
struct Item {
  uint32_t page = 0;
  std::span<const HostPiece> host;  // Borrowed for the call.
  uint64_t sum = 0;
};

struct BlockOfGroup {
  uint32_t group, source, target, tokens;
};

struct Step {
  uint32_t end_layer;  // Of the layers [the last step's end, end_layer).
  size_t end_piece;    // Likewise.
};

struct Plan {
  std::vector<Piece> pieces;
  std::vector<Step> steps;
  uint64_t bytes = 0;
};

// Plans the blocks of a request step by step, so that the first steps can be under way while the
// next ones are planned: a GiB in pieces of 4 KiB has 262,144 of them.
//
// Threading:  the owner's.
// Ownership:  borrows the layout and the host pieces.
class BlockPlanner {
 public:
  BlockPlanner() = default;
  // Requires check_items(). `layers_at_once` 0: one step. `shapes` is the number of the first
  // plane's shape in the mover's table. Throws std::bad_alloc.
  BlockPlanner(const Layout& layout, std::span<const Item> items, uint32_t layers_at_once,
               uint32_t shapes, uint32_t most);

  // All steps and all bytes, but no pieces yet.
  Plan outline() const;
  // Adds the pieces of the next step to `plan`, which began as the outline. False: there is none.
  bool next(Plan& plan);

 private:
  // Where in its host pieces a block's next byte is.
  struct Place {
    uint32_t page;
    std::span<const HostPiece> rest;
    uint64_t offset;
    void skip(uint64_t bytes) noexcept;
  };
  void add_plane(Plan& plan, const LaidPlane& plane, uint32_t item, uint32_t shape);

  const Layout* layout_ = nullptr;
  std::vector<Place> places_;  // For each item.
  uint32_t together_ = 0, shapes_ = 0, most_ = 0;
  uint32_t next_layer_ = 0;
};

// Checks sizes and pages; any address will do. Errors: invalid_argument and out_of_range, with the item's
// number.
Result<void> check_items(const Layout& layout, std::span<const Item> items);

// What a BlockPlanner plans, at once.
Plan plan_blocks(const Layout& layout, std::span<const Item> items, uint32_t layers_at_once,
                 uint32_t shapes, uint32_t most);

// Pages to or from blocks that lie back to back at `packed`, in one step, without the padding.
Plan plan_packed(const Layout& layout, std::span<const uint32_t> pages, uint64_t packed,
                 uint32_t shapes, uint32_t most);

// The first tokens of pages, in one step. `token_shapes` has for each group the number of the first
// plane's shape.
Plan plan_copies(std::span<const Layout> layouts, std::span<const BlockOfGroup> copies,
                 std::span<const uint32_t> token_shapes, uint32_t most);

}  // namespace stemma::mover
