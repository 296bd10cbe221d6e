// A LeaseQueue is a list of ended leases, first in first out, linked through their records: it
// needs no memory.
//
// Threading:  one thread at a time. A record is in one queue at a time.
#pragma once

#include <utility>

#include "cache/lease/lease_record.h"

namespace stemma::cache {

class LeaseQueue {
 public:
  LeaseQueue() noexcept = default;
  LeaseQueue(const LeaseQueue&) = delete;
  LeaseQueue& operator=(const LeaseQueue&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }
  void push(LeaseRecord* lease) noexcept {
    lease->next_in_queue = nullptr;
    *end_ = lease;
    end_ = &lease->next_in_queue;
  }
  // The oldest lease, or null.
  LeaseRecord* pop() noexcept {
    LeaseRecord* lease = first_;
    if (lease == nullptr) return nullptr;
    first_ = lease->next_in_queue;
    if (first_ == nullptr) end_ = &first_;
    return lease;
  }
  // Moves all leases of `older` before those of this queue.
  void put_before(LeaseQueue& older) noexcept {
    if (older.empty()) return;
    *older.end_ = first_;
    if (first_ == nullptr) end_ = older.end_;
    first_ = std::exchange(older.first_, nullptr);
    older.end_ = &older.first_;
  }

 private:
  LeaseRecord* first_ = nullptr;
  LeaseRecord** end_ = &first_;
};

}  // namespace stemma::cache
