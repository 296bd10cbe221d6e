#include "tier/disk/books.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace stemma::tier::disk {

Result<std::unique_ptr<Books>> Books::create(const Options& options) {
  const Error no_memory(Errc::out_of_memory, "no memory for a disk tier's index");
  try {
    std::unique_ptr<Books> books(new Books);
    books->max_pages_ = options.max_pages;
    if (!knows_policy(options.policy)) {
      return Error(Errc::invalid_argument, "there is no retention policy of that name");
    }
    // Reserves address space only; memory is taken as records are used.
    books->policy_ = make_policy(options.policy, kMostRecords);
    if (!books->policy_ || !books->free_.create(kMostRecords, 2)) return no_memory;
    books->buckets_.assign(1024, kNoRecord);
    return books;
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

// ---- The hash
// -------------------------------------------------------------------------------------

size_t Books::bucket(const EntryKey& key) const noexcept {
  return std::hash<EntryKey>()(key) & (buckets_.size() - 1);
}

RecordId Books::look(const EntryKey& key, Record::State state) const noexcept {
  for (RecordId id = buckets_[bucket(key)]; id != kNoRecord; id = records_[id].next) {
    const Record& record = records_[id];
    if (record.state == state && record.chain == key.chain && record.kind == key.kind &&
        record.group == key.group) {
      return id;
    }
  }
  return kNoRecord;
}

void Books::hash_in(RecordId id) noexcept {
  RecordId& first = buckets_[bucket(records_[id].key())];
  records_[id].next = first;
  first = id;
}

void Books::hash_out(RecordId id) noexcept {
  RecordId* at = &buckets_[bucket(records_[id].key())];
  while (*at != id) at = &records_[*at].next;
  *at = records_[id].next;
  records_[id].next = kNoRecord;
}

void Books::grow_hash() {
  try {
    std::vector<RecordId> larger(buckets_.size() * 2, kNoRecord);
    buckets_.swap(larger);
    for (RecordId id : larger) {
      while (id != kNoRecord) {
        const RecordId next = records_[id].next;
        hash_in(id);
        id = next;
      }
    }
  } catch (const std::bad_alloc&) {  // Chains grow longer until there is memory.
  }
}

// ---- Records
// --------------------------------------------------------------------------------------

bool Books::usable(RecordId id) const noexcept {
  const size_t page = id / kRecordsInPage;
  return page >= bad_table_pages_.size() || !bad_table_pages_[page];
}

bool Books::add_record() {
  const RecordId id = records();
  if (id >= kMostRecords || !policy_->prepare(id) || !free_.ensure(id)) return false;
  try {
    if (id / kUsesInPage >= uses_changed_.size()) uses_changed_.push_back(false);
    records_.emplace_back();
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (records_.size() > buckets_.size() * 2) grow_hash();
  return true;
}

// Returns a record whose place on disk the entry's record may overwrite; preferably one with the
// same key, so that the disk never has more than one record of a key.
RecordId Books::take_record(const EntryKey& key) {
  RecordId id = find_stale(key);
  if (id == kNoRecord && !free_.empty(kStale)) id = free_.front(kStale);
  if (id != kNoRecord) {
    hash_out(id);
  } else if (!free_.empty(kClean)) {
    id = free_.front(kClean);
  } else {
    do {
      if (!add_record()) return kNoRecord;
    } while (!usable(records() - 1));
    return records() - 1;
  }
  free_.unlink(id);
  return id;
}

void Books::describe(RecordId id, const EntryKey& key, const EntryInfo& info) noexcept {
  Record& record = records_[id];
  record = Record();
  record.chain = key.chain;
  record.kind = key.kind;
  record.group = key.group;
  record.bytes = info.bytes;
  record.layout = info.layout;
  record.begin = info.begin;
  record.end = info.end;
  record.parent = info.parent;
  record.has_words = info.words != 0;
}

uint32_t Books::extents(RecordId id, std::span<Extent, kMostExtents> out,
                        uint32_t only) const noexcept {
  uint32_t count = 0;
  for (RunId run = records_[id].run; run != kNoRun; run = runs_[run].next, only >>= 1U) {
    if ((only & 1U) != 0) out[count++] = {.first = runs_[run].first, .pages = runs_[run].count};
  }
  return count;
}

void Books::publish(RecordId id, uint64_t sum, uint32_t epoch, uint64_t now_ns) noexcept {
  Record& record = records_[id];
  STEMMA_DCHECK(record.state == Record::State::writing);
  record.state = Record::State::present;
  record.sum = sum;
  record.epoch = epoch;
  ++present_;
  touch(id, now_ns);
}

void Books::touch(RecordId id, uint64_t now_ns) noexcept {
  Record& record = records_[id];
  record.stamp = ++stamp_;
  mark_use(id);
  policy_->touch(id, as_touch(now_ns, record.priority));
}

void Books::unpin(RecordId id) noexcept {
  Record& record = records_[id];
  if (--record.pins != 0) return;
  if (record.state == Record::State::present) {
    // It was up for eviction meanwhile; this counts as a use.
    if (!policy_->holds(id)) policy_->touch(id, as_touch(0, record.priority));
  } else if (record.state == Record::State::dying) {
    release_pages(id);
    if (record.recycled) recycle(id);
  }
}

void Books::forget(RecordId id) noexcept {
  Record& record = records_[id];
  hash_out(id);
  if (record.state == Record::State::present) {
    if (policy_->holds(id)) policy_->remove(id);
    --present_;
  }
  record.state = Record::State::dying;
}

// Frees its runs except the bad ones, which it keeps. Returns where pages are free now.
RunId Books::release_pages(RecordId id) noexcept {
  Record& record = records_[id];
  uint32_t bad = record.bad_runs;
  RunId place = kNoRun;
  RunId kept = kNoRun;
  for (RunId run = record.run; run != kNoRun; bad >>= 1U) {
    const RunId next = runs_[run].next;
    if ((bad & 1U) != 0) {
      runs_.link(run, kept);
      kept = run;
      used_pages_ -= runs_[run].count;
      retired_pages_ += runs_[run].count;
    } else {
      used_pages_ -= runs_[run].count;
      place = runs_.release(run);
    }
    run = next;
  }
  record.run = kept;
  return place;
}

void Books::retire(RecordId id, uint32_t bad_runs) noexcept {
  records_[id].bad_runs = static_cast<uint16_t>(bad_runs);
  forget(id);
  if (records_[id].pins == 0) release_pages(id);
}

void Books::recycle(RecordId id) noexcept {
  Record& record = records_[id];
  STEMMA_DCHECK(record.state == Record::State::dying);
  if (record.pins != 0) {
    record.recycled = true;
  } else if (record.bad_runs != 0) {
    record.state = Record::State::retired;
  } else {
    record.state = Record::State::gone;
    if (usable(id)) free_.push_back(kClean, id);
  }
}

bool Books::restore(RecordId id) noexcept {
  Record& record = records_[id];
  if (record.bad_runs == 0) return false;
  const bool written = record.state == Record::State::retired;
  record.state = Record::State::dying;
  record.bad_runs = 0;
  if (record.pins != 0) return written;  // Its pages become free when the last reader is done.
  for (RunId run = record.run; run != kNoRun;) {
    const RunId next = runs_[run].next;
    retired_pages_ -= runs_[run].count;
    runs_.release(run);
    run = next;
  }
  record.run = kNoRun;
  return written;
}

void Books::lose_table_page(RecordId id) noexcept {
  const size_t page = id / kRecordsInPage;
  try {
    if (page >= bad_table_pages_.size()) bad_table_pages_.resize(page + 1);
  } catch (const std::bad_alloc&) {
    return;  // It fails again at the next attempt.
  }
  bad_table_pages_[page] = true;
  const auto first = static_cast<RecordId>(page * kRecordsInPage);
  for (RecordId one = first; one < std::min(first + kRecordsInPage, records()); ++one) {
    if (!free_.linked(one)) continue;
    free_.unlink(one);
    if (records_[one].state == Record::State::stale) hash_out(one);
    records_[one].state = Record::State::gone;
  }
}

RecordId Books::take_stale(RecordId id) noexcept {
  if (id == kNoRecord && !free_.empty(kStale)) id = free_.front(kStale);
  if (id == kNoRecord) return id;
  free_.unlink(id);
  hash_out(id);
  records_[id].state = Record::State::dying;
  return id;
}

bool Books::take_uses(uint32_t& page, Uses& out) noexcept {
  const auto count = static_cast<uint32_t>(uses_changed_.size());
  for (uint32_t looked_at = 0; looked_at < count; ++looked_at) {
    uses_next_ = (uses_next_ + 1) % count;
    if (!uses_changed_[uses_next_]) continue;
    page = uses_next_;
    uses_changed_[page] = false;
    for (uint32_t i = 0; i < kUsesInPage; ++i) {
      const uint64_t id = uint64_t{page} * kUsesInPage + i;
      const bool there = id < records() && records_[id].state == Record::State::present;
      out[i] = there ? records_[id].stamp : 0;
    }
    return true;
  }
  return false;
}

// ---- Room
// -----------------------------------------------------------------------------------------

RunId Books::evict(RecordId id) noexcept {
  ++evictions_;
  evicted_bytes_ += records_[id].bytes;
  policy_->evicted(id);
  forget(id);
  const RunId place = release_pages(id);
  if (usable(id)) {
    records_[id].state = Record::State::stale;
    hash_in(id);
    free_.push_back(kStale, id);
  } else {  // Its record stays on disk; after a restart it loses against newer ones.
    records_[id].state = Record::State::gone;
  }
  return place;
}

// The next entry that can be evicted. Entries being read come back when their reads end.
RecordId Books::victim(uint64_t now_ns) noexcept {
  for (;;) {
    const RecordId id = policy_->victim(now_ns, false, kNoTenant).cell;
    if (id == kNoCell) return kNoRecord;
    if (records_[id].pins == 0) return id;
    policy_->remove(id);
  }
}

// Of the entries beside a free run that may be evicted, the one that was used longer ago.
RecordId Books::neighbour(RunId place, uint64_t not_after, Priority most) const noexcept {
  RecordId best = kNoRecord;
  for (const RunId run : {runs_[place].before, runs_[place].after}) {
    if (run == kNoRun || runs_[run].owner >= records()) continue;
    const RecordId id = runs_[run].owner;
    const Record& record = records_[id];
    if (record.state != Record::State::present || record.pins != 0 || record.stamp > not_after ||
        record.priority > most) {
      continue;
    }
    if (best == kNoRecord || record.stamp < records_[best].stamp) best = id;
  }
  return best;
}

Books::Room Books::room_for(const EntryKey& key, const EntryInfo& info, Priority priority,
                            uint64_t now_ns, uint64_t not_after) {
  // Neighbours are evicted out of turn only if more pages than this are free in useless pieces.
  const uint64_t scattered = max_pages_ / 32;
  const uint64_t pages = pages_of(info);
  Room room;
  if (pages + retired_pages_ > max_pages_) return room;
  room.what = Room::What::memory;
  if (!runs_.reserve()) return room;
  RunId run = kNoRun;
  RunId place = kNoRun;  // Where the last evicted entry lay.
  Priority most = 0;
  for (;;) {
    if (may_grow() && !runs_.fits_in_one(pages)) {
      constexpr uint64_t kMostStep = (uint64_t{64} << 20U) / kPage;
      const uint64_t step = std::max(std::min(max_pages_ / 16, kMostStep), pages);
      room.what = Room::What::grow;
      room.pages = static_cast<uint32_t>(std::min(step, max_pages_ - runs_.pages()));
      return room;
    }
    run = runs_.take(pages, PageRuns::kSetAside);
    if (run != kNoRun) break;
    RecordId next = kNoRecord;
    if (place != kNoRun && runs_.free_pages() >= pages + scattered) {
      next = neighbour(place, not_after, most);
    }
    if (next == kNoRecord) {
      next = victim(now_ns);
      if (next == kNoRecord || records_[next].stamp > not_after) {
        room.what = Room::What::none;
        return room;
      }
      most = records_[next].priority;
    }
    place = evict(next);
  }
  const RecordId id = take_record(key);
  if (id == kNoRecord) {
    runs_.release_chain(run);
    return room;
  }
  describe(id, key, info);
  Record& record = records_[id];
  record.priority = std::min(priority, kMaxPriority);
  record.state = Record::State::writing;
  record.run = run;
  runs_.give(run, id);
  used_pages_ += pages;
  hash_in(id);
  room.record = id;
  room.what = Room::What::taken;
  return room;
}

bool Books::grown(uint32_t pages) {
  try {
    runs_.append(pages, PageRuns::kFree);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace stemma::tier::disk
