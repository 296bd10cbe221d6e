// SegmentLayout: where the rows of each position lie in a segment as llama.cpp v0.5.0 writes it.
//
// Such a segment is a few fixed bytes, then a row for each position, again and again: positions and sequence numbers;
// K of each layer; V of each layer, or, where V is transposed, one element for each position and channel. So some
// positions of a segment, with the same fixed bytes and another count, are a segment. Rows lie in the order of the
// cells of the context, which need not be that of positions.
//
// Threading:  never changes; any thread.
// Cost:       cut() and join() copy as many bytes as they are about, in one piece for each layer's K and V.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stemma::engine {

class SegmentLayout {
 public:
  // Of a segment of so many positions, behind which `tail_bytes` belong to other layers. None: it is not what we
  // know.
  static std::optional<SegmentLayout> read(std::span<const uint8_t> segment, uint32_t positions,
                                           uint64_t tail_bytes);

  uint64_t size(uint32_t positions) const noexcept { return fixed_bytes_ + positions * row_bytes_; }
  // Puts positions [part_begin, part_begin + part_count) of a segment of `positions` into one of `out_positions`
  // that begins with position `out_begin`, in order. llama.cpp writes rows in the order of its cells, so they are
  // found by the positions that they name. With `frame` the fixed bytes, too; `past_cache`: the result is for a device, and not read
  // here. False: a position is missing, or there twice. Requires that both are as long as size() says. Throws
  // std::bad_alloc.
  bool move(std::span<const uint8_t> segment, uint32_t positions, uint32_t part_begin,
            uint32_t part_count, std::span<uint8_t> out, uint32_t out_positions, uint32_t out_begin,
            bool frame, bool past_cache) const;

 private:
  // Bytes that every segment has once, then `row` bytes for each position.
  struct Area {
    uint64_t fixed = 0;
    uint64_t row = 0;
  };

  std::vector<Area> areas_;
  uint64_t tail_ = 0;  // Fixed bytes behind the last area.
  uint64_t fixed_bytes_ = 0;
  uint64_t row_bytes_ = 0;
};

}  // namespace stemma::engine
