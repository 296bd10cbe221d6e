#include "sequence/segment_loader.h"

#include <algorithm>

namespace stemma::sequence {
namespace {

// The first range has a segment for each thread that puts it together, so that it is ready soon; at
// least this many positions.
constexpr uint32_t kFirstTokens = 512;

uint32_t first_tokens(const RangeMover& mover, uint32_t segment_tokens) noexcept {
  return std::max(kFirstTokens, mover.threads() * segment_tokens);
}

}  // namespace

SegmentLoader::SegmentLoader(SegmentStore& store, std::span<const SavedSegment> pieces)
    : store_(store),
      rest_(pieces),
      tokens_(std::min(first_tokens(*store.mover_, store.tokens_), store.range_tokens_)) {}

SegmentLoader::~SegmentLoader() {
  for (const std::unique_ptr<Part>& part : parts_) {
    store_.mover_->wait(part->batch);
    drop(*part);
  }
}

void SegmentLoader::drop(Part& part) noexcept {
  store_.mover_->give_back(part.buffer, store_.bytes_of(part.range));
}

void SegmentLoader::start_more() {
  RangeMover& mover = *store_.mover_;
  while (!rest_.empty()) {
    auto part = std::make_unique<Part>();
    size_t count = 1;
    while (count < rest_.size() &&
           rest_[count].wanted.end - rest_.front().wanted.begin <= tokens_) {
      ++count;
    }
    part->pieces = rest_.first(count);
    part->range = {rest_.front().wanted.begin, rest_[count - 1].wanted.end};
    part->errors.resize(count);
    parts_.push_back(std::move(part));
    parts_.back()->buffer = mover.take();
    if (parts_.back()->buffer == RangeMover::kNone) {
      parts_.pop_back();
      return;
    }
    rest_ = rest_.subspan(count);
    tokens_ = std::min(store_.range_tokens_, 2 * tokens_);
    Part& it = *parts_.back();
    it.batch.count = static_cast<uint32_t>(count);
    it.batch.task = [this, &it](uint32_t i) {
      const SavedSegment& piece = it.pieces[i];
      const Result<void> joined = join(piece, it);
      if (!joined) it.errors[i] = joined.error().code();
    };
    mover.start(it.batch, true);
  }
}

// Bytes are checked while they are copied. Nothing is handed out before all of them are good.
Result<void> SegmentLoader::join(const SavedSegment& piece, const Part& part) {
  STEMMA_TRY(const std::span<const uint8_t> bytes, store_.bytes_->read_unchecked(piece.slot));
  const auto out = store_.mover_->bytes(part.buffer).first(store_.bytes_of(part.range));
  ByteSum sum;
  const Result<void> joined =
      store_.engine_->join(piece.saved, bytes, piece.wanted, part.range, out, sum);
  if (!joined) return joined;
  return store_.bytes_->check(piece.slot, sum.value());
}

Result<std::optional<SegmentLoader::Ready>> SegmentLoader::next() {
  if (handed_out_) {
    drop(*parts_.front());
    parts_.pop_front();
    handed_out_ = false;
  }
  start_more();
  while (parts_.empty() && !rest_.empty()) {
    // Captures have all the buffers, or the buffers are being cleaned.
    if (!store_.mover_->wait_for_buffer()) {
      return Error(Errc::busy, "all buffers are in use");
    }
    start_more();
  }
  if (parts_.empty()) return std::optional<Ready>();
  Part& part = *parts_.front();
  store_.mover_->wait(part.batch);
  for (size_t i = 0; i < part.errors.size(); ++i) {
    if (part.errors[i] == Errc{}) continue;
    bad_ = part.pieces[i].saved.begin;
    return Error(part.errors[i], "a saved segment is not what it was", bad_);
  }
  handed_out_ = true;
  return std::optional<Ready>(
      Ready{part.range, store_.mover_->bytes(part.buffer).first(store_.bytes_of(part.range))});
}

}  // namespace stemma::sequence
