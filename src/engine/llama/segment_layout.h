// SegmentLayout: where the rows of each position lie in a segment as llama.cpp v0.5.0 writes it.
//
// Such a segment is a series of areas. Each has a few fixed bytes, then a row for each position:
// positions and sequence numbers; K of each layer; V of each layer, or, if V is transposed, one
// element for each position and channel. So some positions of a segment, with the same fixed bytes
// and another count, are again a segment. Rows are in the order of the context's cells, which may
// differ from the order of positions.
//
// Threading:  immutable.
// Cost:       move() reads every byte once, and copies in one piece for each layer's K and V.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stemma/byte_sum.h"

namespace stemma::engine {

class SegmentLayout {
 public:
  // Reads the layout of a segment with `positions` positions; the `tail_bytes` at its end belong to
  // other layers. Returns none if the layout is unknown.
  static std::optional<SegmentLayout> read(std::span<const uint8_t> segment, uint32_t positions,
                                           uint64_t tail_bytes);

  uint64_t size(uint32_t positions) const noexcept { return fixed_bytes_ + positions * row_bytes_; }
  // Moves positions from one segment, which is read, to another, which is written.
  struct Move {
    std::span<const uint8_t> segment;
    uint32_t positions = 0;      // How many positions the segment has.
    uint32_t part_begin = 0;     // The first position to move.
    uint32_t part_count = 0;     // How many positions to move.
    std::span<uint8_t> out;      // The segment that is written.
    uint32_t out_positions = 0;  // How many positions it has.
    uint32_t out_begin = 0;      // The position that it begins with.
  };
  // What is summed, whole and in order: the segment, or the result.
  enum class Summed : uint8_t { source, result };
  // Puts positions of one segment into another, in order. llama.cpp writes rows in the order of its
  // cells, so rows are found by the positions that they name. The fixed bytes are written with the
  // first position of the result. A result can be summed only if all of it is written. Returns
  // false if a position is missing or there twice. Requires that both are as long as size() says.
  // Throws std::bad_alloc.
  bool move(const Move& move, Summed summed, ByteSum& sum) const;

 private:
  // Rows that follow each other in the segment and, unless they are skipped, in the result.
  struct Run {
    uint32_t row = 0;
    uint32_t to = 0;
    uint32_t count = 0;
  };
  static constexpr uint32_t kNowhere = 0xFFFF'FFFFU;
  // The runs in the order of the result; with Summed::source all rows, in the order of the segment.
  // Empty if positions are missing or there twice.
  std::vector<Run> runs_of(const Move& move, Summed summed) const;

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
