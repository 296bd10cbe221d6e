// How puts and removals are carried out.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "key/little_endian.h"
#include "stemma/log.h"
#include "tier/disk/local_tier.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

constexpr uint32_t kMostAttempts = 3;  // Places tried for one put.

uint64_t seconds_since_1970() noexcept {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

// ---- put
// ------------------------------------------------------------------------------------------

void LocalTier::begin_put(Job& job, size_t item_index, uint32_t attempt) {
  const Waiter who = {&job, item_index};
  const TierItem& item = job.batch->items()[item_index];
  if (check_put(item, traits_) != TierOutcome::pending) return end(who, TierOutcome::refused);
  bool there = false;
  {
    const base::MutexLock lock(mutex_);
    if (const RecordId same = books_->find_writing(item.key); same != kNoRecord) {
      followers_.push_back({same, who});
      return;
    }
    const RecordId old = books_->find(item.key);
    there = old != kNoRecord && (*books_)[old].info() == item.info;
    if (there) books_->touch(old, monotonic_ns());
  }
  if (there) return when_written(who, true);

  RecordId record = kNoRecord;
  if (const TierOutcome outcome = find_room(job, item, record); outcome != TierOutcome::pending) {
    return end(who, outcome);
  }
  Op& op = take_op(Op::What::put, who, record);
  op.attempt = attempt;
  op.epoch = epoch_;
  op.serial = serial_++;
  if (start_write(op, item)) return;
  op.error = -ENOSPC;  // No memory for it.
  op.failed = 0;
  give_up_put(op);
}

// Finds pages for the entry, growing the slab if necessary.
TierOutcome LocalTier::find_room(const Job& job, const TierItem& item, RecordId& record) {
  using What = Books::Room::What;
  for (;;) {
    Books::Room room;
    const uint64_t now_ns = monotonic_ns();
    uint64_t pages = 0;
    {
      const base::MutexLock lock(mutex_);
      books_->refuse_growth(now_ns < no_growth_until_ns_);
      room = books_->room_for(item.key, item.info, item.priority, now_ns, job.begun_at);
      pages = books_->pages();
    }
    record = room.record;
    if (room.what == What::taken) {
      erase_before_use(record);
      return TierOutcome::pending;
    }
    if (room.what != What::grow) return TierOutcome::refused;
    // If there is no room for a large step, there may be room for a small one.
    const auto needed = static_cast<uint32_t>(pages_of(item.info));
    uint32_t step = room.pages;
    int result = store_->grow(pages, step);
    while (is_full(result) && step > needed) {
      step = std::max(needed, step / 2);
      result = store_->grow(pages, step);
    }
    note(result);
    if (result >= 0) {
      const base::MutexLock lock(mutex_);
      if (!books_->grown(step)) return TierOutcome::refused;
      continue;
    }
    if (!is_full(result)) return TierOutcome::failed;
    // The disk is full: make do with the existing pages.
    no_growth_until_ns_ = deadline_after(now_ns, options_.retry_ns);
    tell_of_full();
  }
}

void LocalTier::tell_of_full() {
  if (told_of_full_) return;
  told_of_full_ = true;
  uint64_t pages = 0;
  {
    const base::MutexLock lock(mutex_);
    pages = books_->pages();
  }
  log(LogLevel::warning, "disk tier '" + options_.path +
                             "': the file system is full; it makes do with " +
                             std::to_string(pages * kPage) + " of its " +
                             std::to_string(traits_.capacity_bytes) + " bytes");
}

// Begins to write an entry's body. Returns false if there is no memory.
bool LocalTier::start_write(Op& op, const TierItem& item) {
  const Split split = split_body(item.info, item.source.data());
  if (split.rest > kPage) {
    op.bounce = bounces_.take(split.rest);
    if (!op.bounce) return false;
  }
  op.sum = sum(item.words, item.source);
  uint8_t* to = op.body();
  uint8_t* const end = to + split.rest;
  std::memcpy(to, item.source.data() + split.direct, item.source.size() - split.direct);
  to += item.source.size() - split.direct;
  std::memset(to, 0, static_cast<size_t>(end - to));
  if (!item.words.empty()) {
    to += words_at(item.info) - item.info.bytes;
    for (const uint32_t word : item.words) to = key::put_le(to, word);
  }
  // A write does not change its source.
  start_body(op, Io::Kind::write,
             {const_cast<uint8_t*>(item.source.data()), split.direct},  // NOLINT
             {op.body(), split.rest});
  return true;
}

// The body is written: its record now makes it an entry.
void LocalTier::settle_put(Op& op) {
  if (!op.good() || op.epoch <= bad_epoch_) return give_up_put(op);
  const TierItem& item = op.who.job->batch->items()[op.who.item];
  TableRecord record;
  record.header = {.key = item.key,
                   .info = item.info,
                   .sum = op.sum,
                   .written = seconds_since_1970(),
                   .serial = op.serial};
  record.priority = std::min(item.priority, kMaxPriority);
  record.used = op.who.job->used;
  record.extent_count = op.extent_count;
  std::copy_n(op.extents.begin(), op.extent_count, record.extents.begin());
  if (op.error = store_->write_slot(op.record, record); op.error < 0) {
    note(op.error);
    return give_up_put(op, /*in_table=*/true);
  }
  const Waiter who = op.who;
  const RecordId id = op.record;
  const uint64_t sum = op.sum;
  free_op(op);
  RecordId old = kNoRecord;
  {
    const base::MutexLock lock(mutex_);
    old = books_->find(item.key);
    if (old != kNoRecord) books_->retire(old);
    books_->publish(id, sum, epoch_, monotonic_ns());
  }
  // An older entry of this key must be gone before this put is done; otherwise removing the new one
  // would bring the old one back.
  if (old != kNoRecord) write_slot({.record = old, .who = {}});
  end_put(id, who, TierOutcome::done);
}

// The put has failed at this place. If only the place is bad, tries another one.
void LocalTier::give_up_put(Op& op, bool in_table) {
  const bool bad_place = is_bad_place(op.error);
  const bool again = bad_place && op.attempt + 1 < kMostAttempts && op.epoch > bad_epoch_;
  const TierOutcome outcome = is_full(op.error) ? TierOutcome::refused : TierOutcome::failed;
  const uint32_t attempt = op.attempt + 1;
  const uint32_t bad = bad_place && !in_table ? op.failed : 0;
  const Waiter who = op.who;
  const RecordId record = op.record;
  free_op(op);
  {
    const base::MutexLock lock(mutex_);
    if (bad_place && in_table) {
      books_->lose_table_page(record);
      books_->retire(record);
      books_->recycle(record);
    } else {
      discard(record, bad);
    }
  }
  if (!again) return end_put(record, who, outcome);
  std::vector<Waiter> all = {who};
  for (const Follower& one : followers_) {
    if (one.record == record) all.push_back(one.who);
  }
  std::erase_if(followers_, [&](const Follower& one) { return one.record == record; });
  for (const Waiter& one : all) begin_put(*one.job, one.item, attempt);
}

// Ends a put and the puts that waited for it.
void LocalTier::end_put(RecordId record, Waiter who, TierOutcome outcome) {
  std::vector<Waiter> others;
  for (const Follower& one : followers_) {
    if (one.record == record) others.push_back(one.who);
  }
  std::erase_if(followers_, [&](const Follower& one) { return one.record == record; });
  const bool done = outcome == TierOutcome::done;
  done ? when_written(who, false) : end(who, outcome);
  for (const Waiter& other : others) done ? when_written(other, true) : end(other, outcome);
}

void LocalTier::when_written(Waiter who, bool already_there) {
  if (who.job == nullptr) return;
  if (who.job->batch->durable) {
    to_sync_.push_back({who, already_there});
  } else {
    end(who, TierOutcome::done, already_there);
  }
}

// ---- remove
// ---------------------------------------------------------------------------------------

void LocalTier::begin_remove(Job& job, size_t item_index) {
  const EntryKey& key = job.batch->items()[item_index].key;
  SlotWrite slot = {.record = kNoRecord, .who = {&job, item_index}};
  {
    const base::MutexLock lock(mutex_);
    slot.record = books_->find(key);
    if (slot.record != kNoRecord) {
      books_->retire(slot.record);
    } else if (const RecordId stale = books_->find_stale(key); stale != kNoRecord) {
      // It was evicted, but a crash could bring it back.
      slot.record = books_->take_stale(stale);
      slot.outcome = TierOutcome::absent;
    }
  }
  if (slot.record == kNoRecord) return end(slot.who, TierOutcome::absent);
  slots_.push_back(slot);
}

}  // namespace stemma::tier::disk
