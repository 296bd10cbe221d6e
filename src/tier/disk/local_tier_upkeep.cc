// What the tier does besides puts and gets: erases records that no longer count, syncs, writes
// stamps of use, notices removed files, and scrubs.
#include <algorithm>
#include <array>
#include <cstring>

#include "stemma/log.h"
#include "tier/disk/local_tier.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kUsesPeriodNs = 5 * kSecondNs;

}  // namespace

// ---- Records that no longer count
// -----------------------------------------------------------------

// Takes an entry out of sight. `bad_runs`: a bit for each extent that must not be used again.
void LocalTier::discard(RecordId record, uint32_t bad_runs) {
  // As in settle_get().
  if (breaker_.open()) bad_runs = 0;
  books_->retire(record, bad_runs);
  slots_.push_back({.record = record, .who = {}});
  if (bad_runs != 0) just_retired_.push_back(record);
}

void LocalTier::write_slots() {
  if (files_lost_) return;
  std::vector<SlotWrite> slots;
  slots.swap(slots_);
  for (const SlotWrite& slot : slots) write_slot(slot);
  // Evicted entries that were not overwritten, while there is nothing better to do.
  constexpr uint32_t kAtOnce = 256;
  for (uint32_t i = 0; i < kAtOnce && writes_.empty(); ++i) {
    SlotWrite slot;
    {
      const base::MutexLock lock(mutex_);
      slot.record = books_->take_stale();
    }
    if (slot.record == kNoRecord) return;
    write_slot(slot);
  }
}

// Writes zeros over a record of the table, or which of its pages are retired.
int LocalTier::write_slot(const SlotWrite& slot) {
  TableRecord record;
  {
    const base::MutexLock lock(mutex_);
    // A record still being read has all its runs; otherwise it has only the bad ones.
    const Record& dying = (*books_)[slot.record];
    if (dying.bad_runs != 0) {
      record.extent_count =
          books_->extents(slot.record, record.extents, dying.pins == 0 ? ~0U : dying.bad_runs);
    }
  }
  int result = 0;
  if (record.extent_count == 0) {
    result = store_->wipe_slot(slot.record);
  } else {
    record.kind = TableRecord::Kind::retired;
    record.header.serial = serial_++;
    result = store_->write_slot(slot.record, record);
    log(LogLevel::warning,
        "disk tier '" + options_.path + "': page " + std::to_string(record.extents[0].first) +
            " of 'entries.slab' or one behind it failed; they are not used again");
  }
  if (result < 0) note(result);
  {
    const base::MutexLock lock(mutex_);
    if (result < 0 && !is_full(result)) books_->lose_table_page(slot.record);
    books_->recycle(slot.record);
  }
  if (result < 0) {
    end(slot.who, TierOutcome::failed);
    return result;
  }
  slot.outcome == TierOutcome::done ? when_written(slot.who, false) : end(slot.who, slot.outcome);
  return 0;
}

// Not the place but the whole disk failed: pages retired meanwhile may be used again.
void LocalTier::restore_retired() {
  const base::MutexLock lock(mutex_);
  for (const RecordId id : just_retired_) {
    if (books_->restore(id)) slots_.push_back({.record = id, .who = {}});
  }
  just_retired_.clear();
}

// ---- Syncs
// ----------------------------------------------------------------------------------------

void LocalTier::start_sync() {
  if (syncs_left_ != 0 || files_lost_) return;
  // Jobs are in order of arrival.
  const uint64_t oldest = live_.empty() ? ~uint64_t{0} : live_.front().sequence;
  const auto is_due = [&](const std::shared_ptr<Flush>& flush) {
    return slots_.empty() && oldest > flush->sequence;
  };
  for (const auto& flush : flushes_) {
    if (is_due(flush)) flushing_.push_back(flush);
  }
  std::erase_if(flushes_, is_due);
  if (to_sync_.empty() && flushing_.empty()) return;
  if (!flushing_.empty()) write_uses(kNever);
  syncing_.swap(to_sync_);
  ++epoch_;
  sync_result_ = 0;
  syncs_left_ = 2;
  syncs_[0].file = store_->slab;
  syncs_[1].file = store_->table;
  for (Piece& sync : syncs_) queue_->start(sync);
}

void LocalTier::settle_sync(int64_t result) {
  note(result);
  sync_result_ = std::min(sync_result_, result);
  if (--syncs_left_ != 0) return;
  if (sync_result_ < 0) {
    distrust();
  } else if (!store_->in_place()) {
    lose_files();
  } else {
    good_epoch_ = epoch_ - 1;
    return end_syncing(true);
  }
  // Those that wait for the next sync were also written before this one failed.
  syncing_.insert(syncing_.end(), to_sync_.begin(), to_sync_.end());
  to_sync_.clear();
  end_syncing(false);
}

void LocalTier::end_syncing(bool good) {
  std::vector<Synced> ended;
  ended.swap(syncing_);
  for (const Synced& one : ended) {
    end(one.who, good ? TierOutcome::done : TierOutcome::failed, one.already_there);
  }
  const base::Lock lock(flush_mutex_);
  for (const auto& flush : flushing_) flush->done = true, flush->good = good;
  flushing_.clear();
  flushed_.notify_all();
}

// After a failed sync, what was written since the last good one may or may not be on disk; and the
// next sync will not report it, because the system has forgotten the error.
void LocalTier::distrust() {
  uint64_t count = 0;
  {
    const base::MutexLock lock(mutex_);
    std::vector<RecordId> doubtful;
    books_->each_present([&](RecordId id, const Record& record) {
      if (record.epoch > good_epoch_) doubtful.push_back(id);
    });
    for (const RecordId id : doubtful) discard(id, 0);
    count = doubtful.size();
  }
  bad_epoch_ = epoch_++;
  log(LogLevel::warning, "disk tier '" + options_.path +
                             "': a sync failed; what was written since the last one, " +
                             std::to_string(count) + " entries, is given up");
}

// ---- Stamps of use
// --------------------------------------------------------------------------------

// Writes some pages of changed stamps, every few seconds; all of them if the time is kNever.
void LocalTier::write_uses(uint64_t now_ns) {
  if (files_lost_ || now_ns < uses_written_ns_ + kUsesPeriodNs) return;
  constexpr uint32_t kAtOnce = 64;
  Uses stamps;
  std::array<uint8_t, kPage> bytes;
  for (uint32_t i = 0; i < kAtOnce || now_ns == kNever; ++i) {
    uint32_t page = 0;
    bool more = false;
    {
      const base::MutexLock lock(mutex_);
      more = books_->take_uses(page, stamps);
    }
    if (!more) {
      uses_written_ns_ = monotonic_ns();
      return;
    }
    disk::write_uses(stamps, bytes);
    // Losing stamps loses only the order of use.
    (void)store_->files->write(store_->uses, uint64_t{page} * kPage, bytes);
  }
}

// Leaves the directory tidy: evicted entries do not come back, and the order of use is known.
void LocalTier::close_down() {
  if (files_lost_) return;
  write_uses(kNever);
  for (;;) {
    RecordId id = kNoRecord;
    {
      const base::MutexLock lock(mutex_);
      id = books_->take_stale();
      if (id != kNoRecord) books_->recycle(id);
    }
    if (id == kNoRecord || store_->wipe_slot(id) < 0) return;
  }
}

// ---- Files that are gone
// --------------------------------------------------------------------------

// Removed files can still be written and read, so the loss would go unnoticed until the next start.
void LocalTier::look_for_files(uint64_t now_ns) {
  if (files_lost_) return try_reopening(now_ns);
  if (now_ns < looked_ns_ + kSecondNs) return;
  looked_ns_ = now_ns;
  if (store_->in_place()) return;
  lose_files();
  if (syncs_left_ == 0) end_syncing(false);
}

void LocalTier::lose_files() {
  files_lost_ = true;
  bad_epoch_ = epoch_++;
  reopen_ns_ = deadline_after(monotonic_ns(), options_.retry_ns);
  breaker_.trip_for_good();
  log(LogLevel::error, "disk tier '" + options_.path +
                           "': its files were removed while they were in use; what it held is "
                           "lost, and nothing is stored until the directory can be made again");
}

void LocalTier::try_reopening(uint64_t now_ns) {
  // Work that waits for files that are gone has failed.
  std::vector<SlotWrite> slots;
  slots.swap(slots_);
  for (const SlotWrite& slot : slots) end(slot.who, TierOutcome::failed);
  just_retired_.clear();
  if (syncs_left_ == 0) {
    syncing_.insert(syncing_.end(), to_sync_.begin(), to_sync_.end());
    to_sync_.clear();
    flushing_.insert(flushing_.end(), flushes_.begin(), flushes_.end());
    flushes_.clear();
    end_syncing(false);
  }
  if (free_ops_.size() != ops_.size() || syncs_left_ != 0 || now_ns < reopen_ns_) return;
  reopen_ns_ = deadline_after(now_ns, options_.retry_ns);
  store_.reset();  // If its lock file is still there, the lock is ours: release it.
  auto opened = open_store(options_);
  if (!opened) return;
  store_ = *std::move(opened);
  serial_ = std::max(serial_, store_->next_serial);
  {
    const base::MutexLock lock(mutex_);
    books_ = std::move(store_->books);
  }
  files_lost_ = false;
  note(0);
  log(LogLevel::warning, "disk tier '" + options_.path + "': the directory was made again");
}

// ---- Scrubbing
// ------------------------------------------------------------------------------------

// While there is no other work, reads one entry after the other, no faster than configured.
void LocalTier::scrub(uint64_t now_ns) {
  const uint64_t rate = options_.scrub_bytes_per_second;
  const bool busy = !live_.empty() || free_ops_.size() != ops_.size();
  if (rate == 0 || files_lost_ || busy || now_ns < scrub_ns_) return;
  RecordId id = kNoRecord;
  {
    const base::MutexLock lock(mutex_);
    constexpr uint32_t kLookAt = 4096;
    for (uint32_t i = 0; i < kLookAt && id == kNoRecord && books_->records() != 0; ++i) {
      scrub_next_ = (scrub_next_ + 1) % books_->records();
      const Record& record = (*books_)[scrub_next_];
      if (record.state == Record::State::present) id = scrub_next_;
    }
    if (id != kNoRecord) books_->pin(id);
  }
  scrub_ns_ = deadline_after(now_ns, kSecondNs);
  if (id == kNoRecord) return;
  Op& op = take_op(Op::What::scrub, {}, id);
  const uint64_t bytes = body_bytes(op.info);
  scrub_ns_ = deadline_after(now_ns, bytes * kSecondNs / rate);
  start_read(op, {});
}

}  // namespace stemma::tier::disk
