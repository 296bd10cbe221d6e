#include "tier/redis/value_reader.h"

#include <algorithm>
#include <bit>

namespace stemma::tier::redis {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

void ValueReader::begin(uint64_t bytes, TierItem* item) {
  item_ = item;
  left_ = bytes;
  part_done_ = 0;
  outcome_ = TierOutcome::corrupt;
  part_ = bytes > kHeaderBytes ? Part::header : Part::skipped;
}

std::span<uint8_t> ValueReader::room() {
  switch (part_) {
    case Part::header: return std::span(header_bytes_).subspan(part_done_);
    case Part::words:
      return {reinterpret_cast<uint8_t*>(words_.data()) + part_done_,
              words_.size() * 4 - part_done_};
    case Part::payload:
      if (item_ != nullptr) return item_->into.subspan(part_done_, header_.info.bytes - part_done_);
      break;
    case Part::skipped: break;
  }
  if (!scratch_) scratch_ = std::make_unique<std::array<uint8_t, 65'536>>();
  return std::span(*scratch_).first(std::min<uint64_t>(left_, scratch_->size()));
}

void ValueReader::took(size_t bytes) {
  left_ -= bytes;
  part_done_ += bytes;
  if (part_ == Part::header && part_done_ == kHeaderBytes) {
    part_done_ = 0;
    header_is_there();
  } else if (part_ == Part::words && part_done_ == words_.size() * 4) {
    part_done_ = 0;
    part_ = Part::payload;
  }
}

void ValueReader::header_is_there() {
  part_ = Part::skipped;
  if (item_ == nullptr) return;
  const Result<EntryHeader> header = read_header(header_bytes_);
  if (!header) {
    if (header.error().code() == Errc::unsupported) outcome_ = TierOutcome::absent;
    return;
  }
  header_ = *header;
  if (header_.body_bytes() != left_) return;
  outcome_ = believe(header_, *item_);
  if (outcome_ != TierOutcome::done) return;
  words_.resize(header_.info.words);
  part_ = words_.empty() ? Part::payload : Part::words;
}

TierOutcome ValueReader::finish() {
  if (item_ == nullptr) return outcome_;
  if (outcome_ == TierOutcome::refused) item_->info = header_.info;
  if (outcome_ != TierOutcome::done) return outcome_;
  if (sum(words_, item_->into.first(header_.info.bytes)) != header_.sum) {
    return TierOutcome::corrupt;
  }
  item_->info = header_.info;
  return TierOutcome::done;
}

}  // namespace stemma::tier::redis
