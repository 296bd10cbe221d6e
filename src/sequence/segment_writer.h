// SegmentWriter: one prompt on its way into a SegmentStore, range by range.
//
//   begin() --> read() ... read() --> collect() ... --> over()
//    slots       engine to buffer       buffer to slots is done: segments are found from now on
//    are leased
//
// With a RangeMover a range is several segments: the engine reads it into a buffer, threads cut it,
// and collect() commits what they have done, in order. If the saver allows less than a segment at
// once, a segment is read in parts. Without a mover a range is one segment, written straight into
// its slot and committed by read() itself. If a segment's bytes are in memory already, the mover's
// threads copy them, without a buffer. After a failure, what was committed before stays: these are
// whole segments.
//
// Threading:  one thread at a time, the store's; the mover's threads work beside it.
// Ownership:  slots are leased until it goes. The store, the engine and the mover outlive it.
//             Its destructor waits for threads that still write into its slots.
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

  // Leases slots for the part of the prompt that is not saved yet. It is over() at once if there is
  // nothing to do, or no room.
  void begin(const Scope& scope, const Prompt& prompt, TenantId tenant, const Retain& retain,
             Saver& saver);
  // Reads one range through the saver. Returns false if nothing is left to read, or no buffer is
  // free.
  bool read(Saver& saver);
  // Commits segments whose bytes have arrived, until `until_ns` of the store's clock. Returns false
  // if the next bytes have not arrived.
  bool collect(Saver& saver, uint64_t until_ns);
  // Positions from n on cannot be read any more.
  void limit(uint32_t n) noexcept;

  // Nothing is left to read, and everything that was read is committed.
  bool over() const noexcept { return next_ >= end_ && pieces_.empty(); }
  // There is something left to read.
  bool reads() const noexcept { return next_ < end_; }
  // Ranges are being cut.
  bool waits() const noexcept { return !pieces_.empty(); }
  // The size of the ranges that are being cut.
  uint64_t cutting_bytes() const noexcept;
  // Gives up the buffer of a segment that was read in part; it will be read again. Returns false if
  // there is none.
  bool drop_part() noexcept;
  // Waits until the threads are done with the oldest range. May be called without the store's lock.
  void wait();
  // The result so far.
  const Captured& captured() const noexcept { return captured_; }
  // The first position that has not been read.
  uint32_t next() const noexcept { return next_; }

 private:
  // What one call of the engine wrote into a buffer.
  struct Read {
    Range range;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  // A range that was read, while it is cut: several segments in one read, or one in several.
  struct Piece {
    explicit Piece(SegmentWriter& of) noexcept : writer(&of) {}
    ~Piece() { writer->drop(*this); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

    SegmentWriter* const writer;
    Range range;
    uint32_t buffer = RangeMover::kNone;
    std::vector<Read> reads;
    std::vector<std::span<const uint8_t>> sources;  // By segment, where they are in memory already.
    std::vector<std::span<uint8_t>> out;            // By segment.
    std::vector<uint8_t> good;
    uint32_t committed = 0;  // Segments.
    RangeMover::Batch batch;
  };

  Range segment_of(const Piece& piece, uint32_t index) const noexcept;
  bool read_segment(Saver& saver);
  // Lets threads copy all segments whose bytes are in memory already. False: the next one's are
  // not.
  bool take_over(Saver& saver);
  bool read_range(Saver& saver);
  uint32_t slot_of(Range segment) const noexcept {
    return to_index(table_[segment.begin / store_->tokens_]);
  }
  // Takes a buffer, and slots for the segments of [next, end). Returns null if no buffer is free,
  // or on failure.
  std::unique_ptr<Piece> begin_piece(uint32_t end);
  // Reads up to `end` into the piece's buffer. False: it failed.
  bool read_more(Piece& piece, uint32_t end, Saver& saver);
  // Lets the threads cut it.
  void start(std::unique_ptr<Piece> piece);
  // Each puts one segment of a piece into its slot, on any thread. Returns whether it succeeded.
  bool cut(const Piece& piece, uint32_t index) const;
  bool copy(const Piece& piece, uint32_t index) const;
  // Whether a segment that is read in many parts fits into a buffer.
  bool fits_in_parts() const noexcept;
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
  std::unique_ptr<Piece> open_;  // A segment that was read in part. next_ is its begin.
};

}  // namespace stemma::sequence
