#include "sequence/capture_queue.h"

#include "base/check.h"

namespace stemma::sequence {

bool CaptureQueue::create(uint32_t sequences) {
  return order_.create(sequences, 1) && order_.ensure(sequences - 1);
}

void CaptureQueue::add(uint32_t sequence, uint32_t depth) noexcept {
  SequenceRecord& record = records_[sequence];
  if (record.capture != 0) {
    // A later capture of the same sequence contains all of the earlier one.
    remove(sequence, CaptureFate::coalesced);
  } else if (size_ >= limit_) {
    remove(front(), CaptureFate::crowded);
  }
  ++size_;
  record.capture = depth;
  order_.push_back(0, sequence);
}

void CaptureQueue::remove(uint32_t sequence, CaptureFate fate) noexcept {
  (void)take(sequence);
  ++stats_.captures[static_cast<size_t>(fate)];
}

uint32_t CaptureQueue::take(uint32_t sequence) noexcept {
  SequenceRecord& record = records_[sequence];
  STEMMA_CHECK(record.capture != 0);
  const uint32_t depth = record.capture;
  order_.unlink(sequence);
  record.capture = 0;
  --size_;
  return depth;
}

}  // namespace stemma::sequence
