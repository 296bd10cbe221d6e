#include "cache/lease/record_pool.h"

#include "base/thread_number.h"
#include "base/vectors.h"

namespace stemma::cache {

using base::MutexLock;

uint64_t record_allowance(const Options& options) {
  return options.budget_bytes == 0 ? ~uint64_t{0} : (16 << 10U) + options.budget_bytes / 128;
}

RecordPool::RecordPool(const Options& options)
    : allowance_(record_allowance(options)),
      group_count_(static_cast<uint32_t>(options.groups.size())) {}

RecordPool::Slot& RecordPool::slot() noexcept { return slots_[base::thread_number() % kSlots]; }

LeaseRecord* RecordPool::take_any() {
  if (LeaseRecord* record = slot().record.exchange(nullptr, std::memory_order_acq_rel)) {
    return record;
  }
  const MutexLock lock(mutex_);
  if (!free_.empty()) {
    LeaseRecord* record = free_.back();
    free_.pop_back();
    return record;
  }
  auto record = std::make_unique<LeaseRecord>();
  record->ranges.reserve(kMaxPriorityRanges);
  record->copies.reserve(kMaxGroups);
  record->sources.reserve(kMaxGroups);
  record->next_sources.reserve(kMaxGroups);
  record->record_index = static_cast<uint32_t>(records_.size());
  base::make_room(free_, records_.size() + 1 - free_.size());
  records_.push_back(std::move(record));
  return records_.back().get();
}

LeaseRecord* RecordPool::take() {
  LeaseRecord* record = take_any();
  record->reset();
  return record;
}

void RecordPool::give_back(LeaseRecord* record) noexcept {
  record->logits.reset();
  record->past_logits.reset();
  const uint64_t bytes = record->bytes(group_count_);
  if (bytes != record->counted_bytes) {
    bytes_.fetch_add(bytes - record->counted_bytes, std::memory_order_relaxed);
    record->counted_bytes = bytes;
  }
  if (bytes_.load(std::memory_order_relaxed) > allowance_) {
    free(record, bytes);
    return;
  }
  LeaseRecord* expected = nullptr;
  if (slot().record.compare_exchange_strong(expected, record, std::memory_order_acq_rel)) return;
  const MutexLock lock(mutex_);
  free_.push_back(record);
}

void RecordPool::free(LeaseRecord* record, uint64_t bytes) noexcept {
  const MutexLock lock(mutex_);
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  std::unique_ptr<LeaseRecord>& place = records_[record->record_index];
  records_.back()->record_index = record->record_index;
  std::swap(place, records_.back());
  records_.pop_back();
}

}  // namespace stemma::cache
