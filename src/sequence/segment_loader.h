// SegmentLoader: joins saved segments into ranges, which an engine loads in few calls.
//
//   slots, checked --(threads)--> buffer --(engine)--> sequence
//
// While the engine loads one range, threads join the next ones. The first range is short, so that
// the engine does not wait for long. All bytes are checked before they are handed out.
//
// Threading:  one thread at a time, without the store's lock; the mover's threads work beside it.
// Ownership:  the caller holds the segments (SegmentStore::Hold) for as long as the loader lives.
//             The pieces are borrowed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sequence/range_mover.h"
#include "sequence/segment_store.h"

namespace stemma::sequence {

class SegmentLoader {
 public:
  // Whether the store's engine loads ranges.
  static bool serves(const SegmentStore& store) noexcept { return store.range_tokens_ != 0; }
  // The pieces must be consecutive.
  SegmentLoader(SegmentStore& store, std::span<const SavedSegment> pieces);
  ~SegmentLoader();
  SegmentLoader(const SegmentLoader&) = delete;
  SegmentLoader& operator=(const SegmentLoader&) = delete;

  struct Ready {
    Range range;
    std::span<const uint8_t>
        bytes;  // As save() would have written them for the range. Valid until the next call.
  };
  // Returns the next range, or none at the end. Error: what is wrong with the segment that begins
  // at bad(), or out_of_memory.
  Result<std::optional<Ready>> next();
  uint32_t bad() const noexcept { return bad_; }

 private:
  struct Part {
    Range range;
    std::span<const SavedSegment> pieces;
    uint32_t buffer = RangeMover::kNone;
    std::vector<Errc> errors;  // By piece.
    RangeMover::Batch batch;
  };
  // Lets threads begin as many ranges as there are buffers.
  void start_more();
  // Puts one segment in its place in the range.
  Result<void> join(const SavedSegment& piece, const Part& part);
  void drop(Part& part) noexcept;

  SegmentStore& store_;
  std::span<const SavedSegment> rest_;  // Not begun.
  uint32_t tokens_;                     // Of the next range, at most.
  uint32_t bad_ = 0;
  bool handed_out_ = false;  // The first of parts_ is with the caller.
  std::deque<std::unique_ptr<Part>> parts_;
};

}  // namespace stemma::sequence
