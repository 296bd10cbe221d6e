// CaptureQueue: the sequences that wait to be saved, oldest first.
//
// How much of a sequence waits is in its record (SequenceRecord::capture); the queue keeps the
// order and the limit. When it is full, the oldest capture is given up for a new one.
//
// Invariant:  a sequence waits exactly while its record's `capture` is not 0; size() is the number
//             of waiting sequences, and never more than the limit.
// Threading:  one thread at a time; the books' lock guards it.
// Ownership:  the records and the statistics outlive it.
// Cost:       O(1); no allocation after create().
#pragma once

#include <cstdint>
#include <vector>

#include "base/index_lists.h"
#include "sequence/records.h"
#include "stemma/sequence_stats.h"

namespace stemma::sequence {

class CaptureQueue {
 public:
  static constexpr uint32_t kNone = base::IndexLists::kNone;

  // At most `limit` sequences wait at a time. Requires limit >= 1.
  CaptureQueue(std::vector<SequenceRecord>& records, SequenceStats& stats, uint32_t limit) noexcept
      : records_(records), stats_(stats), limit_(limit) {}
  // False when there is no memory.
  [[nodiscard]] bool create(uint32_t sequences);

  // [0, depth) of the sequence is to be saved when there is time. It replaces an earlier capture of
  // the same sequence. Requires depth >= 1.
  void add(uint32_t sequence, uint32_t depth) noexcept;
  // Gives up the capture, and counts it as `fate`. Requires waits(sequence).
  void remove(uint32_t sequence, CaptureFate fate) noexcept;
  // Takes the sequence out of the queue to save it. Returns its depth. Requires waits(sequence).
  uint32_t take(uint32_t sequence) noexcept;

  bool waits(uint32_t sequence) const noexcept { return order_.linked(sequence); }
  uint32_t size() const noexcept { return size_; }
  // The oldest sequence, and the one after another. kNone if there is none.
  uint32_t front() const noexcept { return order_.front(0); }
  uint32_t after(uint32_t sequence) const noexcept { return order_.after(sequence); }

 private:
  std::vector<SequenceRecord>& records_;
  SequenceStats& stats_;
  uint32_t limit_;
  uint32_t size_ = 0;
  base::IndexLists order_;
};

}  // namespace stemma::sequence
