// How a group's pages become blocks: the caller's planes, checked, and where each one is in a
// block.
//
// A block has the planes one after the other; each is padded with zeros to a multiple of 16 bytes.
// A shape merges dimensions that lie together in memory, so most planes become one run.
//
// Invariant:  planes are in ascending order of layer, and every layer has one.
// Threading:  immutable values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mover/piece.h"
#include "stemma/result.h"

namespace stemma::mover {

inline constexpr uint32_t kMaxLayers = 1024;
inline constexpr uint64_t kAlignment = 16;

// As the caller describes it; see stemma_mover_plane.
struct Plane {
  uint64_t base = 0;
  uint64_t page_stride = 0;
  uint64_t run_bytes = 1;
  uint32_t layer = 0;
  uint32_t dim_count = 0;
  std::array<uint64_t, kMaxDims> size{};
  std::array<uint64_t, kMaxDims> stride{};
  uint32_t token_dim = kNoTokens;
};

struct LaidPlane {
  uint64_t base, page_stride;
  uint64_t begin;  // In the block.
  uint32_t layer;
  Shape shape;
  Shape token_shape;  // The same bytes, with the dimension of positions on its own.
  uint64_t page(uint32_t number) const noexcept { return base + number * page_stride; }
  uint64_t padded_bytes() const noexcept {
    return (uint64_t{shape.bytes} + kAlignment - 1) / kAlignment * kAlignment;
  }
};

class Layout {
 public:
  // Errors: invalid_argument; the value is the index of the plane, plus `first_plane`.
  static Result<Layout> make(std::span<const Plane> planes, uint32_t pages, uint32_t first_plane);

  uint32_t pages() const noexcept { return pages_; }
  uint32_t layers() const noexcept { return planes_.back().layer + 1; }
  uint64_t block_bytes() const noexcept { return block_bytes_; }
  std::span<const LaidPlane> planes() const noexcept { return planes_; }
  // The planes of layers [begin, end).
  std::span<const LaidPlane> planes_of(uint32_t begin, uint32_t end) const noexcept;
  // A number for the planes' dimensions, wherever the pages are.
  uint64_t fingerprint() const noexcept { return fingerprint_; }
  // The longest run of any plane.
  uint32_t longest_run() const noexcept;

 private:
  std::vector<LaidPlane> planes_;
  uint64_t block_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  uint32_t pages_ = 0;
};

// Calls body(distance in the page, offset from `first`, bytes) for each run of [first, first +
// bytes) of a plane's contiguous form. Requires first + bytes <= shape.bytes.
template <class Body>
void for_each_run(const Shape& shape, uint32_t first, uint32_t bytes, Body&& body) {
  uint32_t done = 0;
  while (done < bytes) {
    const uint32_t at = first + done;
    const uint32_t rest = shape.run_bytes - at % shape.run_bytes;
    const uint32_t length = rest < bytes - done ? rest : bytes - done;
    body(distance_in_page(shape, at), done, length);
    done += length;
  }
}

}  // namespace stemma::mover
