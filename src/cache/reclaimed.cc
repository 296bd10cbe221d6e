// Reclaimed: blocks that were evicted and are held until their bytes are saved.
#include "stemma/reclaimed.h"

#include <utility>

#include "cache/core.h"

namespace stemma {

Reclaimed::Reclaimed(Reclaimed&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      evicted_(other.evicted_),
      blocks_(std::move(other.blocks_)),
      paths_(std::move(other.paths_)) {}

Reclaimed& Reclaimed::operator=(Reclaimed&& other) noexcept {
  if (this != &other) {
    const Reclaimed old(std::move(*this));
    core_ = std::exchange(other.core_, nullptr);
    evicted_ = other.evicted_;
    blocks_ = std::move(other.blocks_);
    paths_ = std::move(other.paths_);
  }
  return *this;
}

Reclaimed::~Reclaimed() {
  if (core_ != nullptr) core_->end_reclaim(blocks_);
}

std::span<const Token> Reclaimed::words(const Block& block) const noexcept {
  if (block.path >= paths_.size() || paths_[block.path].size() < block.end) return {};
  return std::span<const Token>(paths_[block.path]).subspan(block.begin, block.end - block.begin);
}

}  // namespace stemma
