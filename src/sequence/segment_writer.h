// SegmentWriter: one prompt on its way into a SegmentStore, range by range.
//
//   begin() --> read() ... read() --> collect() ... --> over()
//    slots       engine to buffer       buffer to slots is done: segments are found from now on
//    are leased
//
// With a RangeMover a range is several segments: the engine reads it into a buffer, threads cut it, and collect()
// commits what they have done, in order. Without one a range is one segment, written straight into its slot and
// committed by read() itself. What was committed when something fails stays: it is whole segments, as good as any.
//
// Threading:  one thread at a time, that of the store; the threads of the mover work beside it.
// Ownership:  slots are leased until it goes. The store, the engine and the mover outlive it. Letting go of it waits
//             for threads that still write into its slots.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "sequence/range_mover.h"
#include "sequence/segment_store.h"

namespace stemma::sequence {

class SegmentWriter {
 public:
  // Without a store there is nothing to write.
  explicit SegmentWriter(SegmentStore* store) : store_(store) {}
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // Leases slots for what of the prompt is not saved yet. over() at once where there is nothing to do, or no room.
  void begin(const Scope& scope, const Prompt& prompt, TenantId tenant, const Retain& retain,
             Saver& saver);
  // Has the saver read one range. False: nothing is left to be read, or no buffer is free.
  bool read(Saver& saver);
  // Commits segments whose bytes have arrived, until `until_ns` of the store's clock. False: the next have not.
  bool collect(Saver& saver, uint64_t until_ns);
  // Positions from n on cannot be read any more.
  void limit(uint32_t n) noexcept;

  // Everything was read, or never will be; everything that was read is committed.
  bool over() const noexcept { return next_ >= end_ && pieces_.empty(); }
  // There is something to be read.
  bool reads() const noexcept { return next_ < end_; }
  // Ranges are being cut.
  bool waits() const noexcept { return !pieces_.empty(); }
  // Waits until the threads are done with the oldest range. Holds nothing: may be called without the store's lock.
  void wait();
  // What became of it, so far.
  const Captured& captured() const noexcept { return captured_; }
  // The first position that has not been read.
  uint32_t next() const noexcept { return next_; }

 private:
  // A range that was read, while it is cut.
  struct Piece {
    Range range;
    uint32_t buffer = RangeMover::kNone;
    uint64_t bytes = 0;
    std::vector<std::span<uint8_t>> out;  // By segment.
    std::vector<uint8_t> good;
    uint32_t committed = 0;  // Segments.
    RangeMover::Batch batch;
  };

  Range segment_of(const Piece& piece, uint32_t index) const noexcept;
  bool read_segment(Saver& saver);
  bool read_range(Saver& saver);
  uint32_t slot_of(Range segment) const noexcept {
    return to_index(table_[segment.begin / store_->tokens_]);
  }
  CaptureFate fill(Piece& piece, Saver& saver);
  bool commit(Range segment, Saver& saver);
  void fail(CaptureFate fate) noexcept;
  void drop(Piece& piece) noexcept;

  SegmentStore* store_;
  Lease lease_;
  std::vector<BlockId> table_;
  uint32_t next_ = 0;
  uint32_t end_ = 0;
  Captured captured_{CaptureFate::present, 0};
  std::deque<std::unique_ptr<Piece>> pieces_;
};

}  // namespace stemma::sequence
