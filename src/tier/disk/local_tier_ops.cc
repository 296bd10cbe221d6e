// How gets are carried out, and how operations read and write in pieces.
#include <algorithm>
#include <array>
#include <cstring>

#include "tier/disk/local_tier.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

// ---- Ops and their pieces
// -------------------------------------------------------------------------

// Requires: an operation is free; mutex_ is not held.
LocalTier::Op& LocalTier::take_op(Op::What what, Waiter who, RecordId record) {
  Op& op = *free_ops_.back();
  free_ops_.pop_back();
  op.what = what;
  op.who = who;
  op.record = record;
  op.verdict = TierOutcome::pending;
  const base::MutexLock lock(mutex_);
  op.info = (*books_)[record].info();
  op.sum = (*books_)[record].sum;
  op.extent_count = books_->extents(record, op.extents);
  (what == Op::What::put ? writing_ : reading_).begin(monotonic_ns());
  return op;
}

void LocalTier::free_op(Op& op) {
  {
    const base::MutexLock lock(mutex_);
    (op.what == Op::What::put ? writing_ : reading_).end(monotonic_ns());
  }
  bounces_.give_back(std::move(op.bounce));
  op.bounce = PageMemory();
  op.who = {};
  op.record = kNoRecord;
  free_ops_.push_back(&op);
}

// Begins a read or a write of a whole body: `front`, then `rest`.
void LocalTier::start_body(Op& op, Io::Kind kind, iovec front, iovec rest) {
  op.error = 0;
  op.failed = 0;
  op.is_short = false;
  op.pieces_left = op.extent_count;
  for (uint32_t i = 0; i < op.extent_count; ++i) {
    Piece& piece = op.pieces[i];
    piece.kind = kind;
    piece.file = store_->slab;
    piece.offset = uint64_t{op.extents[i].first} * kPage;
    piece.left = uint64_t{op.extents[i].pages} * kPage;
    piece.part_count = 0;
    for (uint64_t wanted = piece.left; wanted != 0;) {
      iovec& from = front.iov_len != 0 ? front : rest;
      const uint64_t count = std::min<uint64_t>(wanted, from.iov_len);
      piece.parts[piece.part_count++] = {from.iov_base, count};
      from = {static_cast<uint8_t*>(from.iov_base) + count, from.iov_len - count};
      wanted -= count;
    }
    queue_->start(piece);
  }
}

void LocalTier::settle(Piece& piece) {
  note(piece.result);
  Op& op = *piece.op;
  if (piece.result < 0) {
    op.error = piece.result;
    op.failed |= 1U << static_cast<uint32_t>(&piece - op.pieces.data());
  } else if (piece.result == 0) {
    op.is_short = true;  // The file ends there.
  } else if (static_cast<uint64_t>(piece.result) < piece.left) {
    // A short transfer is no error yet: the rest is requested.
    auto moved = static_cast<uint64_t>(piece.result);
    piece.left -= moved;
    piece.offset += moved;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < piece.part_count; ++i) {
      iovec part = piece.parts[i];
      const uint64_t skipped = std::min<uint64_t>(moved, part.iov_len);
      moved -= skipped;
      if (skipped == part.iov_len) continue;
      piece.parts[kept++] = {static_cast<uint8_t*>(part.iov_base) + skipped,
                             part.iov_len - skipped};
    }
    piece.part_count = kept;
    return queue_->start(piece);
  }
  if (--op.pieces_left == 0) settle(op);
}

void LocalTier::settle(Op& op) {
  if (op.what == Op::What::put) return settle_put(op);
  // Checking one small entry takes less time than handing it to another thread.
  constexpr uint64_t kSmall = 32U << 10U;
  constexpr uint64_t kLarge = 1U << 20U;
  const size_t under_way = ops_.size() - free_ops_.size();
  if (op.info.bytes >= kSmall && under_way >= (op.info.bytes >= kLarge ? 2 : 4)) {
    checker_->start(op.pieces[0]);
  } else {
    check(op);
    settle_get(op);
  }
}

// ---- get ----------------------------------------------------------------------------------------

void LocalTier::begin_get(Job& job, size_t item_index) {
  const Waiter who = {&job, item_index};
  TierItem& item = job.batch->items()[item_index];
  RecordId id = kNoRecord;
  TierOutcome outcome = TierOutcome::absent;
  {
    const base::MutexLock lock(mutex_);
    id = books_->find(item.key);
    if (id != kNoRecord) {
      EntryHeader header;
      header.key = item.key;
      header.info = (*books_)[id].info();
      outcome = believe(header, item);
      if (outcome == TierOutcome::done) books_->pin(id);
      if (outcome == TierOutcome::corrupt) discard(id, 0);
    }
  }
  if (outcome != TierOutcome::done) return end(who, outcome);
  start_read(take_op(Op::What::get, who, id), item.into);
}

// Requires: its record is pinned.
void LocalTier::start_read(Op& op, std::span<uint8_t> into) {
  const Split split = split_body(op.info, into.empty() ? nullptr : into.data());
  op.direct = split.direct != 0 && !into.empty();
  const uint64_t rest = op.direct ? split.rest : pages_of(op.info) * kPage;
  if (rest > kPage) {
    op.bounce = bounces_.take(rest);
    if (!op.bounce) {
      op.verdict = TierOutcome::failed;
      op.error = -ENOMEM;
      return settle_get(op);
    }
  }
  start_body(op, Io::Kind::read, op.direct ? iovec{into.data(), split.direct} : iovec{nullptr, 0},
             {op.body(), rest});
}

void LocalTier::check(Op& op) {
  TierItem* item = op.who.job == nullptr ? nullptr : &op.who.job->batch->items()[op.who.item];
  op.verdict = op.error < 0  ? TierOutcome::failed
               : op.is_short ? TierOutcome::corrupt  // The file has been truncated.
                             : verify(op, item);
}

TierOutcome LocalTier::verify(const Op& op, TierItem* item) {
  const uint64_t bytes = op.info.bytes;
  const uint8_t* payload = op.body();
  const uint8_t* words = payload + words_at(op.info);
  if (op.direct) {
    const uint64_t whole = bytes / kPage * kPage;
    std::memcpy(item->into.data() + whole, op.page, bytes - whole);
    payload = item->into.data();
    words = op.page + (words_at(op.info) - whole);
  }
  const std::span<const uint32_t> kept(reinterpret_cast<const uint32_t*>(words), op.info.words);
  if (sum(kept, {payload, bytes}) != op.sum) return TierOutcome::corrupt;
  if (item == nullptr) return TierOutcome::done;
  if (!op.direct) std::memcpy(item->into.data(), payload, bytes);
  item->info = op.info;
  return TierOutcome::done;
}

void LocalTier::settle_checked() {
  std::array<Io*, 8> checked = {};
  for (size_t count = checked.size(); count == checked.size();) {
    count = checker_->wait(checked, 0);
    for (size_t i = 0; i < count; ++i) settle_get(*static_cast<Piece*>(checked[i])->op);
  }
}

void LocalTier::settle_get(Op& op) {
  const Waiter who = op.who;
  const TierOutcome outcome = op.verdict;
  const RecordId record = op.record;
  // If the whole disk fails, no place is marked bad: the data may come back with the disk.
  const uint32_t bad = is_bad_place(op.error) && !breaker_.open() ? op.failed : 0;
  free_op(op);
  {
    const base::MutexLock lock(mutex_);
    books_->unpin(record);
    const bool present = (*books_)[record].state == Record::State::present;
    if (present && (bad != 0 || outcome == TierOutcome::corrupt)) discard(record, bad);
  }
  end(who, outcome);
}

}  // namespace stemma::tier::disk
