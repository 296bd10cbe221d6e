#include "sequence/segment_writer.h"

#include <algorithm>
#include <new>

#include "stemma/clock.h"

namespace stemma::sequence {

SegmentWriter::~SegmentWriter() {
  for (const std::unique_ptr<Piece>& piece : pieces_) {
    store_->mover_->wait(piece->batch);
    drop(*piece);
  }
  if (lease_.active()) (void)lease_.release();
}

void SegmentWriter::begin(const Scope& scope, const Prompt& prompt, TenantId tenant,
                          const Retain& retain, Saver& saver) try {
  const auto end = static_cast<uint32_t>(prompt.tokens.size());
  if (end == 0) return;
  if (end > store_->capacity_tokens()) {
    captured_.fate = CaptureFate::too_large;
    return;
  }
  LeaseOptions options;
  options.lookup.allow_copy = false;
  // A scope is one tenant's for as long as anything of it is saved.
  options.tenant = store_->cache_.tenant_of(scope).value_or(tenant);
  options.retain = retain;
  const Result<Report> found = store_->cache_.lookup(scope, prompt, options.lookup);
  if (found && found->matched_tokens >= end) {
    const SegmentStore::Hold used =
        store_->hold(scope, prompt, end, tenant, retain);  // To its last word.
    if (used.lease.active()) {
      table_.resize(used.lease.block_count(0));
      const bool known = used.lease.block_table(0, table_).has_value();
      // The last one may be a copy that nobody will make: of less than a segment.
      saver.prepared(std::span(table_).first(known ? used.usable / store_->tokens_ : 0));
    }
    return;
  }
  Result<Lease> lease = store_->cache_.lease(scope, prompt, options);
  if (!lease) {
    const Errc code = lease.error().code();
    captured_.fate = code == Errc::invalid_argument ? CaptureFate::failed : CaptureFate::no_room;
    return;
  }
  lease_ = *std::move(lease);
  table_.resize(lease_.block_count(0));
  if (!lease_.block_table(0, table_)) {
    captured_.fate = CaptureFate::failed;
    return;
  }
  saver.prepared(std::span(table_).first(lease_.reused() / store_->tokens_));
  captured_.fate = CaptureFate::saved;
  next_ = lease_.reused();
  end_ = end;
} catch (const std::bad_alloc&) {
  captured_.fate = CaptureFate::no_room;
}

void SegmentWriter::limit(uint32_t n) noexcept {
  if (n >= end_) return;
  // A range ends with a segment, or where the sequence ends: a part of one is not read.
  end_ = std::max(next_, n / store_->tokens_ * store_->tokens_);
  if (end_ <= next_ && captured_.bytes == 0 && pieces_.empty()) captured_.fate = CaptureFate::stale;
}

void SegmentWriter::fail(CaptureFate fate) noexcept {
  captured_.fate = fate;
  end_ = next_;
}

bool SegmentWriter::read(Saver& saver) {
  if (!reads()) return false;
  return saver.most_tokens() == 0 || store_->range_tokens_ == 0 ? read_segment(saver)
                                                                : read_range(saver);
}

// ---- One segment, straight into its slot ---------------------------------------------------------

bool SegmentWriter::read_segment(Saver& saver) {
  const Range range{next_, std::min(end_, next_ + store_->tokens_)};
  const uint32_t slot = slot_of(range);
  ByteStore& bytes = *store_->bytes_;
  const Result<uint64_t> size = saver.size(range);
  if (!size || *size == 0 || *size > store_->slot_bytes_) {
    fail(size && *size > store_->slot_bytes_ ? CaptureFate::too_large : CaptureFate::failed);
    return true;
  }
  store_->forget_label(slot);
  const Result<std::span<uint8_t>> room = bytes.open(slot, *size);
  if (!room) {
    fail(CaptureFate::no_room);
    return true;
  }
  const Result<uint64_t> written = saver.save(range, *room);
  if (!written || *written == 0 || *written > *size || !bytes.seal(slot, *written)) {
    bytes.drop(slot);
    fail(CaptureFate::failed);
    return true;
  }
  next_ = range.end;
  if (!commit(range, saver)) fail(CaptureFate::failed);
  return true;
}

bool SegmentWriter::commit(Range segment, Saver& saver) {
  const uint32_t slot = slot_of(segment);
  store_->saved_tokens_[slot] = segment.end - segment.begin;
  store_->set_label(slot, saver.saved(segment, store_->bytes_->written(slot)));
  captured_.bytes += store_->bytes_->size(slot);
  // From here on others find it.
  return lease_.commit(segment.end).has_value();
}

// ---- Several at once, through a buffer -----------------------------------------------------------

Range SegmentWriter::segment_of(const Piece& piece, uint32_t index) const noexcept {
  const uint32_t begin = piece.range.begin + index * store_->tokens_;
  return {begin, std::min(piece.range.end, begin + store_->tokens_)};
}

bool SegmentWriter::read_range(Saver& saver) try {
  RangeMover& mover = *store_->mover_;
  const uint32_t tokens = store_->tokens_;
  const uint32_t most =
      std::max(tokens, std::min(saver.most_tokens(), store_->range_tokens_) / tokens * tokens);
  // Two are for loading.
  if (pieces_.size() + 2 >= std::max(mover.buffers(), 3U)) return false;
  auto piece = std::make_unique<Piece>();
  piece->range = {next_, std::min(end_, next_ + most)};
  piece->bytes = store_->bytes_of(piece->range);
  const uint32_t count = (piece->range.end - next_ + tokens - 1) / tokens;
  piece->good.resize(count);
  piece->out.reserve(count);
  pieces_.push_back(std::move(piece));
  Piece& it = *pieces_.back();
  it.buffer = mover.take();
  if (it.buffer == RangeMover::kNone) {
    pieces_.pop_back();
    return false;
  }
  const CaptureFate fate = fill(it, saver);
  if (fate != CaptureFate::saved) {
    drop(it);
    pieces_.pop_back();
    fail(fate);
    return true;
  }
  next_ = it.range.end;
  it.batch.count = count;
  it.batch.task = [this, &it](uint32_t i) {
    const Range segment = segment_of(it, i);
    const std::span<uint8_t> out = it.out[i];
    const auto bytes = store_->mover_->bytes(it.buffer).first(it.bytes);
    const uint64_t share = it.bytes / it.good.size();
    const bool last = i + 1 == it.good.size();
    ByteSum sum;
    const bool good =
        !store_->mover_->unwritten(it.buffer, i * share, last ? it.bytes : (i + 1) * share) &&
        store_->engine_->cut(it.range, bytes, segment, out, sum).has_value() &&
        store_->bytes_->seal(slot_of(segment), out.size(), sum.value()).has_value();
    it.good[i] = good ? 1 : 0;
  };
  mover.start(it.batch);
  return true;
} catch (const std::bad_alloc&) {
  fail(CaptureFate::no_room);
  return true;
}

// Slots for its segments, and its bytes from the engine.
CaptureFate SegmentWriter::fill(Piece& piece, Saver& saver) {
  for (uint32_t i = 0; i < piece.good.size(); ++i) {
    const Range segment = segment_of(piece, i);
    store_->forget_label(slot_of(segment));
    const Result<std::span<uint8_t>> room =
        store_->bytes_->open(slot_of(segment), store_->bytes_of(segment), Fill::none);
    if (!room) return CaptureFate::no_room;
    piece.out.push_back(*room);
  }
  const Result<uint64_t> written = saver.save(piece.range, store_->mover_->bytes(piece.buffer));
  return written && *written == piece.bytes ? CaptureFate::saved : CaptureFate::failed;
}

void SegmentWriter::wait() {
  if (!pieces_.empty()) store_->mover_->wait(pieces_.front()->batch);
}

void SegmentWriter::drop(Piece& piece) noexcept {
  if (piece.buffer != RangeMover::kNone) {
    store_->mover_->give_back(piece.buffer, piece.bytes + store_->traits_.checkpoint_bytes);
    piece.buffer = RangeMover::kNone;
  }
}

bool SegmentWriter::collect(Saver& saver, uint64_t until_ns) {
  while (!pieces_.empty()) {
    Piece& piece = *pieces_.front();
    if (!RangeMover::done(piece.batch)) return false;
    drop(piece);
    for (; piece.committed < piece.good.size(); ++piece.committed) {
      if (store_->clock_->now_ns() >= until_ns) return true;
      if (piece.good[piece.committed] == 0 || !commit(segment_of(piece, piece.committed), saver)) {
        // What lies behind it would be behind a gap.
        for (const std::unique_ptr<Piece>& other : pieces_) {
          store_->mover_->wait(other->batch);
          drop(*other);
        }
        pieces_.clear();
        fail(CaptureFate::failed);
        return true;
      }
    }
    pieces_.pop_front();
  }
  return true;
}

}  // namespace stemma::sequence
