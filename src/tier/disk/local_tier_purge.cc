// How a purge proceeds: see LocalTier::Purging.
#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

#include "tier/disk/local_tier.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

// Limits of one step of a purge, between two looks at other work: so many records, and so many free
// pages or as many as can be erased in kStepNs.
constexpr size_t kAtOnce = 256;
constexpr uint32_t kPagesAtOnce = 4096, kPiecePages = 1024;
constexpr uint64_t kStepNs = 2'000'000;

std::string system_text(int64_t error) {
  return std::error_code(static_cast<int>(-error), std::generic_category()).message();
}

}  // namespace

Purged LocalTier::purge(const Purge& what, uint64_t until_ns) try {
  const auto ticket = std::make_shared<Purging>();
  ticket->what = what;
  ticket->until_ns = until_ns;
  {
    const base::MutexLock lock(mutex_);
    ticket->sequence = sequence_;
    incoming_purges_.push_back(ticket);
  }
  queue_->wake();
  base::Lock lock(flush_mutex_);
  const auto answered = [&] { return ticket->answered; };
  if (tier::wait_until(flushed_, lock, until_ns, answered)) return ticket->answer;
  return {.error = "the disk did not answer in time; what has begun goes on"};
} catch (const std::bad_alloc&) {
  return {.error = "there is no memory for it"};
}

// While a purge waits, nothing that was submitted after it begins.
bool LocalTier::holds_back(const Job& job) const noexcept {
  return !purges_.empty() && purges_.front()->stage == Purging::Stage::waiting &&
         job.sequence > purges_.front()->sequence;
}

void LocalTier::work_on_purges(uint64_t now_ns, bool closing) {
  using Stage = Purging::Stage;
  while (!purges_.empty()) {
    const std::shared_ptr<Purging> purge = purges_.front();
    if (files_lost_ || closing) {
      answer(*purge, files_lost_ ? "its files were removed while they were in use"
                                 : "the tier was closed before it had ended");
      purges_.pop_front();
      continue;
    }
    if (purge->stage == Stage::waiting) {
      const bool is_quiet = free_ops_.size() == ops_.size() &&
                            (live_.empty() || live_.front().sequence > purge->sequence);
      if (!is_quiet && now_ns < purge->until_ns) return;
      if (!is_quiet || broken(now_ns)) {
        answer(*purge, is_quiet ? "the disk fails" : "what was submitted before has not ended");
        purges_.pop_front();
        continue;
      }
      condemn(*purge);
    }
    if (purge->stage == Stage::erasing) {
      erase_some(*purge);
      if (!purge->free.empty() || !purge->records.empty()) return;
      purge->flush = std::make_shared<Flush>();
      flushes_.push_back(purge->flush);
      purge->stage = Stage::syncing;
    }
    if (!purge->flush->done) return;
    if (!purge->flush->good) {
      answer(*purge, "a sync failed, so that it may come back after a loss of power");
    } else if (purge->failures != 0) {
      answer(*purge, "the file system refused to erase " + std::to_string(purge->failures) +
                         " places: " + system_text(purge->error));
    } else {
      answer(*purge, "");
    }
    purges_.pop_front();
  }
}

// No read or write is under way now. Free pages hold entries that were evicted or removed before,
// perhaps of the same scope.
void LocalTier::condemn(Purging& purge) {
  purge.stage = Purging::Stage::erasing;
  try {
    const base::MutexLock lock(mutex_);
    for (const Extent& pages : books_->free_extents()) purge.free.add(pages);
    purge.answer = books_->condemn(purge.what, purge.records);
  } catch (const std::bad_alloc&) {
    purge.free = {};
    ++purge.failures;
    purge.error = -ENOMEM;
  }
}

// Erases the pages before a put uses them: a put that fails leaves their old bytes.
void LocalTier::erase_before_use(RecordId record) {
  if (purges_.empty() || purges_.front()->stage != Purging::Stage::erasing) return;
  Purging& purge = *purges_.front();
  if (purge.free.empty()) return;
  std::array<Extent, kMostExtents> pages;
  uint32_t extents = 0;
  {
    const base::MutexLock lock(mutex_);
    extents = books_->extents(record, pages);
  }
  try {
    for (uint32_t e = 0; e < extents; ++e) {
      for (const Extent& unerased : purge.free.take(pages[e])) erase(purge, unerased);
    }
  } catch (const std::bad_alloc&) {
    ++purge.failures;
    purge.error = -ENOMEM;
  }
}

void LocalTier::erase_some(Purging& purge) {
  const uint64_t end_ns = monotonic_ns() + kStepNs;
  for (uint32_t pages = 0; !purge.free.empty(); pages += kPiecePages) {
    if (pages >= kPagesAtOnce || (pages != 0 && monotonic_ns() >= end_ns)) return;
    erase(purge, purge.free.take_some(kPiecePages));
  }
  const size_t count = std::min(kAtOnce, purge.records.size());
  for (size_t i = 0; i < count; ++i) {
    const RecordId record = purge.records.back();
    purge.records.pop_back();
    std::array<Extent, kMostExtents> pages;
    uint32_t extents = 0;
    {
      const base::MutexLock lock(mutex_);
      extents = books_->extents(record, pages);
    }
    // The record first, so that no entry is ever found with its pages zeroed.
    if (const int result = write_slot({.record = record, .who = {}}); result < 0) {
      ++purge.failures;
      purge.error = result;
    }
    for (uint32_t e = 0; e < extents; ++e) erase(purge, pages[e]);
    const base::MutexLock lock(mutex_);
    books_->unpin(record);
  }
}

void LocalTier::erase(Purging& purge, const Extent& pages) {
  const int result = store_->erase(pages);
  if (result >= 0) return;
  note(result);
  ++purge.failures;
  purge.error = result;
}

void LocalTier::answer(Purging& purge, std::string error) {
  const base::Lock lock(flush_mutex_);
  purge.answer.complete = error.empty();
  purge.answer.error = std::move(error);
  purge.answered = true;
  flushed_.notify_all();
}

}  // namespace stemma::tier::disk
