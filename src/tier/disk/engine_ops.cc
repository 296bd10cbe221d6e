#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "key/little_endian.h"
#include "stemma/log.h"
#include "tier/disk/engine.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

uint64_t seconds_since_1970() noexcept {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

// A slot that could not be written is tried again after so many times retry_ns: a disk that was full or away
// comes back, and a bad spot costs one put each time.
constexpr uint64_t kLostRetries = 16;

bool is_full(int64_t result) noexcept { return result == -ENOSPC || result == -EDQUOT; }

}  // namespace

void Engine::begin_job(Job& job) {
  job.begun = true;
  const base::MutexLock lock(mutex_);
  job.begun_at = books_.stamp();
  if (job.batch->op() == TierOp::put) job.serial = serial_++;
  if (job.batch->op() != TierOp::get) return;
  // The deepest goes first, so it is the first to be touched.
  for (size_t i = job.batch->items().size(); i-- > 0;) {
    const RecordId id = books_.find(job.batch->items()[i].key);
    if (id != kNoRecord) books_.touch(id, monotonic_ns());
  }
}

void Engine::begin_item(Job& job, size_t item) {
  const uint64_t now_ns = monotonic_ns();
  const TierOutcome verdict = job.batch->verdict(now_ns);
  if (verdict != TierOutcome::pending) return end({&job, item}, verdict);
  if (broken(now_ns)) return end({&job, item}, TierOutcome::failed);
  switch (job.batch->op()) {
    case TierOp::put: return begin_put(job, item);
    case TierOp::get: return begin_get(job, item);
    case TierOp::remove: return begin_remove(job, item);
    case TierOp::contains:
    case TierOp::touch: break;
  }
}

void Engine::launch(Op& op, Io::Kind kind, uint64_t offset) {
  op.kind = kind;
  op.offset = offset;
  op.left = op.bytes();
  free_ops_.pop_back();
  {
    const base::MutexLock lock(mutex_);
    (op.what == Op::What::get ? reading_ : writing_).begin(monotonic_ns());
  }
  queue_->start(op);
}

void Engine::free_op(Op& op) {
  {
    const base::MutexLock lock(mutex_);
    (op.what == Op::What::get ? reading_ : writing_).end(monotonic_ns());
  }
  bounces_.give_back(std::move(op.bounce));
  op.bounce = PageMemory();
  op.who = {};
  op.record = kNoRecord;
  free_ops_.push_back(&op);
}

void Engine::settle(Op& op) {
  note(op.result);
  // Too few is no error yet: the rest is asked for.
  if (op.result > 0 && static_cast<uint64_t>(op.result) < op.left) {
    auto moved = static_cast<uint64_t>(op.result);
    op.left -= moved;
    op.offset += moved;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < op.part_count; ++i) {
      iovec part = op.parts[i];
      const uint64_t skipped = std::min<uint64_t>(moved, part.iov_len);
      moved -= skipped;
      if (skipped == part.iov_len) continue;
      part.iov_base = static_cast<uint8_t*>(part.iov_base) + skipped;
      part.iov_len -= skipped;
      op.parts[kept++] = part;
    }
    op.part_count = kept;
    return queue_->start(op);
  }
  switch (op.what) {
    case Op::What::put: return settle_put(op);
    case Op::What::get: break;
    case Op::What::zero: return settle_zero(op);
  }
  // A single small one is looked at sooner than it is handed over.
  constexpr uint64_t kSmall = 32U << 10U;
  constexpr size_t kBusy = 4;
  op.verdict = TierOutcome::pending;
  if (op.info.bytes >= kSmall && ops_.size() - free_ops_.size() >= kBusy) {
    checker_->give(op);
  } else {
    check(op);
    settle_get(op);
  }
}

// ---- put ------------------------------------------------------------------------------------------

void Engine::begin_put(Job& job, size_t item_index) {
  const Waiter who = {&job, item_index};
  const TierItem& item = job.batch->items()[item_index];
  if (check_put(item, traits_) != TierOutcome::pending ||
      slot_pages_for(shape_of(item.info).pages) > store_->format.chunk_bytes / kPage - 1) {
    return end(who, TierOutcome::refused);
  }
  bool there = false;
  {
    const base::MutexLock lock(mutex_);
    if (const RecordId same = books_.find_writing(item.key); same != kNoRecord) {
      followers_.push_back({same, who});
      return;
    }
    const RecordId old = books_.find(item.key);
    there = old != kNoRecord && books_[old].info() == item.info;
    if (there) books_.touch(old, monotonic_ns());
  }
  if (there) return when_written(who, true);

  RecordId record = kNoRecord;
  if (const TierOutcome outcome = find_room(job, item, record); outcome != TierOutcome::pending) {
    return end(who, outcome);
  }
  Op& op = *free_ops_.back();
  if (!fill_put(op, item, job.serial)) {
    abandon(record);
    return end(who, TierOutcome::refused);
  }
  op.what = Op::What::put;
  op.who = who;
  op.record = record;
  uint64_t offset = 0;
  {
    const base::MutexLock lock(mutex_);
    offset = books_.offset(record);
  }
  launch(op, Io::Kind::write, offset);
}

// A slot for it, after growing or changing a chunk where that is what it takes.
TierOutcome Engine::find_room(const Job& job, const TierItem& item, RecordId& record) {
  using What = SlotBooks::Room::What;
  const auto slot_pages = static_cast<uint32_t>(slot_pages_for(shape_of(item.info).pages));
  for (;;) {
    SlotBooks::Room room;
    const uint64_t now_ns = monotonic_ns();
    {
      const base::MutexLock lock(mutex_);
      books_.refuse_growth(now_ns < no_growth_until_ns_);
      if (books_.lost() != 0 && now_ns >= no_lost_until_ns_) books_.restore_lost();
      room = books_.room_for(item.key, item.info, item.priority, now_ns, job.begun_at);
    }
    record = room.record;
    if (room.what == What::slot) return TierOutcome::pending;
    if (room.what == What::none || room.what == What::memory) return TierOutcome::refused;
    const bool grows = room.what == What::grow;
    const int result = store_->prepare_chunk(room.chunk, slot_pages, !grows);
    note(result);
    bool assigned = false;
    if (result >= 0) {
      const base::MutexLock lock(mutex_);
      assigned = books_.assign(room.chunk, slot_pages);
    }
    if (assigned) continue;
    if (grows) {
      store_->drop_chunk(room.chunk);
    } else {
      const base::MutexLock lock(mutex_);
      books_.spoil(room.chunk);
    }
    if (result < 0 && !is_full(result)) return TierOutcome::failed;
    if (result >= 0 || !grows) return TierOutcome::refused;
    // The disk is full: make do with the chunks there are.
    no_growth_until_ns_ = deadline_after(now_ns, options_.retry_ns);
    tell_of_full();
  }
}

void Engine::tell_of_full() {
  if (told_of_full_) return;
  told_of_full_ = true;
  uint64_t chunks = 0;
  {
    const base::MutexLock lock(mutex_);
    chunks = books_.chunks();
  }
  log(LogLevel::warning, "disk tier '" + store_->path +
                             "': the file system is full; it makes do with " +
                             std::to_string(chunks * store_->format.chunk_bytes) + " of its " +
                             std::to_string(traits_.capacity_bytes) + " bytes");
}

// Puts an entry's bytes where they will be written from. False: no memory.
bool Engine::fill_put(Op& op, const TierItem& item, uint64_t serial) {
  const EntryShape shape = shape_of(item.info);
  const EntryHeader header = {.key = item.key,
                              .info = item.info,
                              .sum = sum(item.words, item.source),
                              .written = seconds_since_1970(),
                              .serial = serial};
  const bool direct = shape.payload_at == kPage && at_page(item.source.data());
  uint8_t* front = op.pages;
  if (!direct && !shape.inlined) {
    op.bounce = bounces_.take(shape.pages * kPage);
    if (!op.bounce) return false;
    front = op.bounce.data();
  }
  write_header(header, std::span<uint8_t, kHeaderBytes>(front, kHeaderBytes));
  uint8_t* to = front + kHeaderBytes;
  for (const uint32_t word : item.words) to = key::put_le(to, word);
  if (direct) {
    std::memset(to, 0, static_cast<size_t>(front + kPage - to));
    const size_t whole = item.source.size() / kPage * kPage;
    const size_t rest = item.source.size() - whole;
    op.part_count = 0;
    op.parts[op.part_count++] = {front, kPage};
    // A write does not change what it is given.
    if (whole != 0) {
      op.parts[op.part_count++] = {const_cast<uint8_t*>(item.source.data()), whole};  // NOLINT
    }
    if (rest != 0) {
      uint8_t* tail = op.pages + kPage;
      std::memcpy(tail, item.source.data() + whole, rest);
      std::memset(tail + rest, 0, kPage - rest);
      op.parts[op.part_count++] = {tail, kPage};
    }
    return true;
  }
  std::memset(to, 0, static_cast<size_t>(front + shape.payload_at - to));
  to = front + shape.payload_at;
  std::memcpy(to, item.source.data(), item.source.size());
  to += item.source.size();
  std::memset(to, 0, static_cast<size_t>(front + shape.pages * kPage - to));
  op.parts[0] = {front, shape.pages * kPage};
  op.part_count = 1;
  return true;
}

void Engine::settle_put(Op& op) {
  const bool whole = op.result >= 0 && static_cast<uint64_t>(op.result) == op.left;
  const TierOutcome bad = is_full(op.result) ? TierOutcome::refused : TierOutcome::failed;
  const Waiter who = op.who;
  const RecordId record = op.record;
  free_op(op);
  if (whole) {
    const base::MutexLock lock(mutex_);
    // Its predecessor of another shape has done its duty.
    const RecordId old = books_.find(books_[record].key());
    if (old != kNoRecord) {
      books_.retire(old);
      zeros_.push_back({old, {}});
    }
    books_.publish(record, monotonic_ns());
  } else {
    abandon(record);
  }
  std::vector<Waiter> others;
  for (const Follower& one : followers_) {
    if (one.record == record) others.push_back(one.who);
  }
  std::erase_if(followers_, [&](const Follower& one) { return one.record == record; });
  whole ? when_written(who, false) : end(who, bad);
  for (const Waiter& other : others) whole ? when_written(other, true) : end(other, bad);
}

// What was being written will not be there; nor may what lay there before.
void Engine::abandon(RecordId record) {
  const base::MutexLock lock(mutex_);
  books_.retire(record);
  zeros_.push_back({record, {}});
}

void Engine::when_written(Waiter who, bool already_there) {
  if (who.job == nullptr) return;
  if (who.job->batch->durable) {
    to_sync_.push_back({who, already_there});
  } else {
    end(who, TierOutcome::done, already_there);
  }
}

// ---- get ------------------------------------------------------------------------------------------

void Engine::begin_get(Job& job, size_t item_index) {
  const Waiter who = {&job, item_index};
  TierItem& item = job.batch->items()[item_index];
  Op& op = *free_ops_.back();
  uint64_t offset = 0;
  TierOutcome outcome = TierOutcome::absent;
  {
    const base::MutexLock lock(mutex_);
    const RecordId id = books_.find(item.key);
    if (id != kNoRecord) {
      EntryHeader header;
      header.key = item.key;
      header.info = books_[id].info();
      outcome = believe(header, item);
      if (outcome == TierOutcome::done) {
        books_.pin(id);
        op.record = id;
        op.info = header.info;
        offset = books_.offset(id);
      } else if (outcome == TierOutcome::corrupt) {
        books_.retire(id);
        zeros_.push_back({id, {}});
      }
    }
  }
  if (outcome != TierOutcome::done) return end(who, outcome);

  const EntryShape shape = shape_of(op.info);
  op.direct = shape.payload_at == kPage && at_page(item.into.data());
  if (op.direct) {
    const size_t whole = op.info.bytes / kPage * kPage;
    op.part_count = 0;
    op.parts[op.part_count++] = {op.pages, kPage};
    if (whole != 0) op.parts[op.part_count++] = {item.into.data(), whole};
    if (whole != op.info.bytes) op.parts[op.part_count++] = {op.pages + kPage, kPage};
  } else {
    uint8_t* to = op.pages;
    if (!shape.inlined) {
      op.bounce = bounces_.take(shape.pages * kPage);
      to = op.bounce.data();
    }
    if (to == nullptr) {
      unpin(op.record, false);
      return end(who, TierOutcome::failed);
    }
    op.parts[0] = {to, shape.pages * kPage};
    op.part_count = 1;
  }
  op.what = Op::What::get;
  op.who = who;
  launch(op, Io::Kind::read, offset);
}

void Engine::unpin(RecordId record, bool corrupt) {
  const base::MutexLock lock(mutex_);
  books_.unpin(record);
  if (corrupt && books_[record].state == Record::State::present) {
    books_.retire(record);
    zeros_.push_back({record, {}});
  }
}

TierOutcome Engine::verify(const Op& op, TierItem& item) {
  const EntryShape shape = shape_of(op.info);
  const uint8_t* front = op.bounce ? op.bounce.data() : op.pages;
  const auto header = read_header(std::span<const uint8_t, kHeaderBytes>(front, kHeaderBytes));
  if (!header || !(header->key == item.key) || !(header->info == op.info)) {
    return TierOutcome::corrupt;
  }
  const uint64_t bytes = op.info.bytes;
  const uint8_t* payload = front + shape.payload_at;
  if (op.direct) {
    const uint64_t rest = bytes % kPage;
    std::memcpy(item.into.data() + bytes - rest, op.pages + kPage, rest);
    payload = item.into.data();
  }
  const std::span<const uint32_t> words(reinterpret_cast<const uint32_t*>(front + kHeaderBytes),
                                        op.info.words);
  if (sum(words, {payload, bytes}) != header->sum) return TierOutcome::corrupt;
  if (!op.direct) std::memcpy(item.into.data(), payload, bytes);
  item.info = header->info;
  return TierOutcome::done;
}

void Engine::check(Op& op) {
  op.verdict = TierOutcome::failed;
  if (op.result < 0) return;
  // The file may have become shorter.
  const bool whole = static_cast<uint64_t>(op.result) == op.left;
  op.verdict = whole ? verify(op, op.who.job->batch->items()[op.who.item]) : TierOutcome::corrupt;
}

void Engine::settle_checked() {
  std::array<Io*, 8> checked = {};
  for (size_t count = checked.size(); count == checked.size();) {
    count = checker_->take(checked);
    for (size_t i = 0; i < count; ++i) settle_get(*static_cast<Op*>(checked[i]));
  }
}

void Engine::settle_get(Op& op) {
  const Waiter who = op.who;
  const TierOutcome outcome = op.verdict;
  const RecordId record = op.record;
  free_op(op);
  unpin(record, outcome == TierOutcome::corrupt);
  end(who, outcome);
}

// ---- remove, and slots that must not come back ----------------------------------------------------

void Engine::begin_remove(Job& job, size_t item_index) {
  const Waiter who = {&job, item_index};
  RecordId id = kNoRecord;
  {
    const base::MutexLock lock(mutex_);
    id = books_.find(job.batch->items()[item_index].key);
    if (id != kNoRecord) books_.retire(id);
  }
  if (id == kNoRecord) return end(who, TierOutcome::absent);
  zeros_.push_back({id, who});
}

void Engine::start_zeros() {
  for (size_t i = 0; i < zeros_.size() && !free_ops_.empty();) {
    const Zero zero = zeros_[i];
    uint64_t offset = 0;
    {
      const base::MutexLock lock(mutex_);
      if (books_[zero.record].pins == 0) offset = books_.offset(zero.record);
    }
    if (offset == 0) {  // No slot begins there: it is still being read.
      ++i;
      continue;
    }
    zeros_[i] = zeros_.back();
    zeros_.pop_back();
    Op& op = *free_ops_.back();
    op.what = Op::What::zero;
    op.who = zero.who;
    op.record = zero.record;
    op.parts[0] = {zero_page_.data(), kPage};
    op.part_count = 1;
    launch(op, Io::Kind::write, offset);
  }
}

void Engine::settle_zero(Op& op) {
  const bool whole = op.result >= 0 && static_cast<uint64_t>(op.result) == op.left;
  const Waiter who = op.who;
  const RecordId record = op.record;
  free_op(op);
  {
    const base::MutexLock lock(mutex_);
    whole ? books_.free(record) : books_.lose(record);
  }
  if (!whole) {
    const uint64_t wait_ns =
        options_.retry_ns > kNever / kLostRetries ? kNever : kLostRetries * options_.retry_ns;
    no_lost_until_ns_ = deadline_after(monotonic_ns(), wait_ns);
  }
  whole ? when_written(who, false) : end(who, TierOutcome::failed);
}

}  // namespace stemma::tier::disk
