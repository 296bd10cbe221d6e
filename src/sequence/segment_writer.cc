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
  (void)drop_part();
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
  // A scope belongs to one tenant as long as anything of it is saved.
  options.tenant = store_->cache_.tenant_of(scope).value_or(tenant);
  options.retain = retain;
  const Result<Report> found = store_->cache_.lookup(scope, prompt, options.lookup);
  if (found && found->matched_tokens >= end) {
    const SegmentStore::Hold used =
        store_->hold(scope, prompt, end, tenant, retain);  // To its last word.
    if (used.lease.active()) {
      table_.resize(used.lease.block_count(0));
      const bool known = used.lease.block_table(0, table_).has_value();
      // The last block may be a copy, never made, of less than a segment.
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
  // A range ends where a segment or the sequence ends: part of a segment is of no use.
  if (open_ != nullptr && n < open_->range.end) (void)drop_part();
  end_ = std::max(next_, n / store_->tokens_ * store_->tokens_);
  if (end_ <= next_ && captured_.bytes == 0 && pieces_.empty()) captured_.fate = CaptureFate::stale;
}

bool SegmentWriter::drop_part() noexcept {
  if (open_ == nullptr) return false;
  drop(*open_);
  open_.reset();
  return true;
}

void SegmentWriter::fail(CaptureFate fate) noexcept {
  (void)drop_part();
  captured_.fate = fate;
  end_ = next_;
}

bool SegmentWriter::read(Saver& saver) {
  if (!reads()) return false;
  if (open_ == nullptr && store_->mover_ != nullptr && take_over(saver)) return true;
  if (saver.most_tokens() != 0 && store_->range_tokens_ != 0) return read_range(saver);
  // This commits at once, so pieces that threads still copy must be committed before.
  return pieces_.empty() && read_segment(saver);
}

// ---- One segment, straight into its slot --------------------------------------------------------

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

// ---- Several at once, from memory ---------------------------------------------------------------

bool SegmentWriter::take_over(Saver& saver) try {
  auto piece = std::make_unique<Piece>(*this);
  piece->range = {next_, next_};
  while (piece->range.end < end_) {
    const Range segment{piece->range.end, std::min(end_, piece->range.end + store_->tokens_)};
    const std::span<const uint8_t> source = saver.bytes_of(segment);
    if (source.empty() || source.size() > store_->slot_bytes_) break;
    store_->forget_label(slot_of(segment));
    const Result<std::span<uint8_t>> room =
        store_->bytes_->open(slot_of(segment), source.size(), Fill::none);
    if (!room) break;
    piece->sources.push_back(source);
    piece->out.push_back(*room);
    piece->range.end = segment.end;
  }
  if (piece->sources.empty()) return false;
  piece->good.resize(piece->sources.size());
  next_ = piece->range.end;
  start(std::move(piece));
  return true;
} catch (const std::bad_alloc&) {
  fail(CaptureFate::no_room);
  return true;
}

bool SegmentWriter::copy(const Piece& piece, uint32_t index) const {
  const std::span<const uint8_t> source = piece.sources[index];
  ByteSum sum;
  sum.copy(source, piece.out[index].data());
  ByteSum::end_of_copies();
  return store_->bytes_->seal(slot_of(segment_of(piece, index)), source.size(), sum.value())
      .has_value();
}

// ---- Several at once, through a buffer ----------------------------------------------------------

Range SegmentWriter::segment_of(const Piece& piece, uint32_t index) const noexcept {
  const uint32_t begin = piece.range.begin + index * store_->tokens_;
  return {begin, std::min(piece.range.end, begin + store_->tokens_)};
}

bool SegmentWriter::fits_in_parts() const noexcept {
  const uint64_t frames = uint64_t{store_->tokens_} * store_->traits_.fixed_bytes;
  return store_->bytes_of({0, store_->tokens_}) + frames + store_->traits_.checkpoint_bytes <=
         store_->mover_->buffer_bytes();
}

bool SegmentWriter::read_range(Saver& saver) try {
  const uint32_t tokens = store_->tokens_;
  const uint32_t from = open_ == nullptr ? next_ : open_->reads.back().range.end;
  const uint32_t most =
      open_ == nullptr ? std::min(end_, next_ + store_->range_tokens_) : open_->range.end;
  uint32_t to = saver.reach({from, most});
  std::unique_ptr<Piece> piece = std::move(open_);
  if (piece == nullptr) {
    const uint32_t segment_end = std::min(end_, next_ + tokens);
    if (to < segment_end && !fits_in_parts()) to = segment_end;
    // Whole segments, except for the last one of the prompt.
    if (to > segment_end && to != end_) to -= (to - next_) % tokens;
    piece = begin_piece(std::max(to, segment_end));
    if (piece == nullptr) return captured_.fate == CaptureFate::no_room;
  }
  if (!read_more(*piece, to, saver)) {
    drop(*piece);
    fail(CaptureFate::failed);
    return true;
  }
  if (to < piece->range.end) {
    open_ = std::move(piece);
    return true;
  }
  next_ = piece->range.end;
  start(std::move(piece));
  return true;
} catch (const std::bad_alloc&) {
  fail(CaptureFate::no_room);
  return true;
}

std::unique_ptr<SegmentWriter::Piece> SegmentWriter::begin_piece(uint32_t end) {
  RangeMover& mover = *store_->mover_;
  // Two buffers are left for loading.
  if (store_->writing_buffers_ + 2 >= std::max(mover.buffers(), 3U)) return nullptr;
  auto piece = std::make_unique<Piece>(*this);
  piece->range = {next_, end};
  const uint32_t count = (end - next_ + store_->tokens_ - 1) / store_->tokens_;
  piece->good.resize(count);
  piece->out.reserve(count);
  piece->reads.reserve(count == 1 ? store_->tokens_ : 1);
  piece->buffer = mover.take();
  if (piece->buffer == RangeMover::kNone) return nullptr;
  ++store_->writing_buffers_;
  for (uint32_t i = 0; i < count; ++i) {
    const Range segment = segment_of(*piece, i);
    store_->forget_label(slot_of(segment));
    const Result<std::span<uint8_t>> room =
        store_->bytes_->open(slot_of(segment), store_->bytes_of(segment), Fill::none);
    if (!room) {
      drop(*piece);
      fail(CaptureFate::no_room);
      return nullptr;
    }
    piece->out.push_back(*room);
  }
  return piece;
}

bool SegmentWriter::read_more(Piece& piece, uint32_t end, Saver& saver) {
  const bool first = piece.reads.empty();
  const Range range{first ? piece.range.begin : piece.reads.back().range.end, end};
  const Read read{range, first ? 0 : piece.reads.back().offset + piece.reads.back().bytes,
                  store_->bytes_of(range)};
  const Result<uint64_t> written =
      saver.save(range, store_->mover_->bytes(piece.buffer).subspan(read.offset));
  // Recorded even on failure: the buffer must be cleaned before the next use.
  piece.reads.push_back(read);
  return written && *written == read.bytes;
}

void SegmentWriter::start(std::unique_ptr<Piece> piece) {
  pieces_.push_back(std::move(piece));
  Piece& it = *pieces_.back();
  it.batch.count = static_cast<uint32_t>(it.good.size());
  it.batch.task = [this, &it](uint32_t i) {
    it.good[i] = (it.sources.empty() ? cut(it, i) : copy(it, i)) ? 1 : 0;
  };
  // Parts that a caller brought serve a request that waits, so they are urgent.
  store_->mover_->start(it.batch, !it.sources.empty());
}

bool SegmentWriter::cut(const Piece& piece, uint32_t index) const {
  const RangeMover& mover = *store_->mover_;
  const Range segment = segment_of(piece, index);
  const std::span<uint8_t> out = piece.out[index];
  const auto bytes_of = [&](const Read& read) {
    return mover.bytes(piece.buffer).subspan(read.offset, read.bytes);
  };
  if (piece.reads.size() > 1) {
    // One segment, read in several parts.
    for (const Read& read : piece.reads) {
      ByteSum of_part;
      if (mover.unwritten(piece.buffer, read.offset, read.offset + read.bytes) ||
          !store_->engine_->join(read.range, bytes_of(read), read.range, segment, out, of_part)) {
        return false;
      }
    }
    return store_->bytes_->seal(slot_of(segment), out.size()).has_value();
  }
  const Read& all = piece.reads.front();
  const uint64_t share = all.bytes / piece.good.size();
  const bool last = index + 1 == piece.good.size();
  ByteSum sum;
  return !mover.unwritten(piece.buffer, index * share, last ? all.bytes : (index + 1) * share) &&
         store_->engine_->cut(all.range, bytes_of(all), segment, out, sum).has_value() &&
         store_->bytes_->seal(slot_of(segment), out.size(), sum.value()).has_value();
}

uint64_t SegmentWriter::cutting_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Piece>& piece : pieces_) bytes += store_->bytes_of(piece->range);
  return bytes;
}

void SegmentWriter::wait() {
  if (!pieces_.empty()) store_->mover_->wait(pieces_.front()->batch);
}

void SegmentWriter::drop(Piece& piece) noexcept {
  if (piece.buffer == RangeMover::kNone) return;
  const uint64_t used = piece.reads.empty() ? 0
                                            : piece.reads.back().offset + piece.reads.back().bytes +
                                                  store_->traits_.checkpoint_bytes;
  store_->mover_->give_back(piece.buffer, used);
  --store_->writing_buffers_;
  piece.buffer = RangeMover::kNone;
}

bool SegmentWriter::collect(Saver& saver, uint64_t until_ns) {
  while (!pieces_.empty()) {
    Piece& piece = *pieces_.front();
    if (!RangeMover::done(piece.batch)) return false;
    drop(piece);
    for (; piece.committed < piece.good.size(); ++piece.committed) {
      if (store_->clock_->now_ns() >= until_ns) return true;
      if (piece.good[piece.committed] == 0 || !commit(segment_of(piece, piece.committed), saver)) {
        // Anything behind it would lie behind a gap.
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
