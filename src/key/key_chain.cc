#include "key/key_chain.h"

#include "base/check.h"

namespace stemma::key {

KeyChain::KeyChain(const Scope& scope, std::span<const uint32_t> words,
                   std::span<const MediaSpan> spans, uint32_t block_words) noexcept
    : words_(words),
      spans_(spans),
      block_words_(block_words),
      root_(root_key(scope)),
      before_(root_),
      last_(root_) {
  STEMMA_CHECK(block_words >= 1 && block_words <= kMaxBlockWords);
}

ContentKey KeyChain::step(const ContentKey& parent, uint32_t begin, uint32_t end) noexcept {
  const auto runs =
      spans_.empty() ? std::span<const MediaRun>() : media_runs(spans_, begin, end - begin, room_);
  return block_key(parent, words_.subspan(begin, end - begin), runs);
}

ContentKey KeyChain::at(uint32_t depth) noexcept {
  STEMMA_CHECK(depth >= 1 && depth <= words_.size());
  if (depth < reached_) {
    before_ = last_ = root_;
    reached_ = 0;
  }
  for (; depth - reached_ >= block_words_; reached_ += block_words_) {
    before_ = last_;
    last_ = step(last_, reached_, reached_ + block_words_);
  }
  return depth == reached_ ? last_ : step(last_, reached_, depth);
}

ContentKey KeyChain::parent_of(uint32_t depth) noexcept {
  STEMMA_CHECK(depth >= 1 && depth <= words_.size());
  const uint32_t grid = depth / block_words_ * block_words_;
  if (reached_ != grid) (void)at(depth);
  return depth == grid ? before_ : last_;
}

}  // namespace stemma::key
