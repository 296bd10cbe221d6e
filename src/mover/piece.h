// What a mover copies: pieces of blocks, and the shapes that say where their bytes are in a page.
// Plain structs, which the copying kernel reads too.
//
// A piece is a range of one plane's bytes in one block. On one side its bytes are contiguous (host
// memory, or packed blocks on the device), on the other they are spread over a page as the shape
// says. A piece may end in padding: bytes at or after shape.bytes are zeros that no page has.
//
// Invariant:  a piece begins at a multiple of 16 bytes in its plane and in its block.
// Threading:  pure functions.
#pragma once

#include <cstdint>

#include "base/word_sum.h"

namespace stemma::mover {

inline constexpr uint32_t kMaxDims = 4;
inline constexpr uint32_t kNoTokens = 0xFFFF'FFFFU;
inline constexpr uint32_t kAllTokens = 0xFFFF'FFFFU;

// One page of a plane: size[0] * size[1] * ... runs of run_bytes bytes, the first dimension
// outermost.
struct Shape {
  uint64_t stride[kMaxDims];
  uint32_t size[kMaxDims];
  uint32_t dims;
  uint32_t run_bytes;
  uint32_t bytes;      // Of all runs.
  uint32_t wide;       // 1: runs, strides, page strides and the base are multiples of 16.
  uint32_t token_dim;  // The dimension of positions, or kNoTokens.
  uint32_t reserved;
};
static_assert(sizeof(Shape) == 72);

struct Piece {
  uint64_t page;    // Address of the plane's first byte in this page.
  uint64_t packed;  // Address of the piece's first byte on the contiguous side.
  uint64_t sum;     // Written by the kernel: the piece's share of its block's sum.
  uint32_t first;   // Offset of the piece's first byte in the plane.
  uint32_t bytes;   // With padding.
  uint32_t word;    // Index of the piece's first 8-byte word in its block.
  uint32_t shape;   // Index in the mover's table of shapes.
  uint32_t item;    // Index of the transfer's item.
  uint32_t tokens;  // For copies between pages: `packed` is the target page, with the same shape.
};
static_assert(sizeof(Piece) == 48);

// What the kernel does with pieces.
enum class Way : uint32_t {
  to_pages,       // packed -> page
  from_pages,     // page -> packed, zeros as padding
  between_pages,  // page -> another page, the first tokens of it
  sum_pages       // Only sums what is in the pages.
};

// How far the byte at `offset` of a plane's contiguous form is from the page's first byte.
STEMMA_HOST_DEVICE inline uint64_t distance_in_page(const Shape& shape, uint32_t offset) {
  if (shape.dims == 0) return offset;
  uint32_t run = offset / shape.run_bytes;
  uint64_t distance = offset - run * shape.run_bytes;
  for (uint32_t d = shape.dims; d-- > 0;) {
    const uint32_t outer = run / shape.size[d];
    distance += (run - outer * shape.size[d]) * shape.stride[d];
    run = outer;
  }
  return distance;
}

// The first `tokens` positions of a page; all of it if the shape has no dimension of positions.
STEMMA_HOST_DEVICE inline Shape first_tokens(Shape shape, uint32_t tokens) {
  if (shape.token_dim == kNoTokens || tokens >= shape.size[shape.token_dim]) return shape;
  shape.bytes = shape.bytes / shape.size[shape.token_dim] * tokens;
  shape.size[shape.token_dim] = tokens;
  return shape;
}

}  // namespace stemma::mover
