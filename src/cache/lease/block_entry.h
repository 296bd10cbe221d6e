// A BlockEntry is one line of a lease's block table: a block, and by what right the lease uses it.
//
// Threading:  immutable.
// Cost:       4 bytes. The bits of a shared block are its number, so the cells that a lookup found
//             are entries already.
#pragma once

#include <cstdint>

#include "pool/block_pool.h"

namespace stemma::cache {

class BlockEntry {
 public:
  // No block: a window has passed it.
  static constexpr BlockEntry none() noexcept { return BlockEntry(kBlockMask); }
  // Cached, and held because the lease holds its path.
  static constexpr BlockEntry shared(uint32_t block) noexcept { return BlockEntry(block); }
  // Cached, and pinned by this lease: a block of a window or recurrent group.
  static constexpr BlockEntry pinned(uint32_t block) noexcept {
    return BlockEntry(block | kPinned);
  }
  // This lease's own: a draft or a duplicate.
  static constexpr BlockEntry own(uint32_t block) noexcept { return BlockEntry(block | kOwn); }
  // Will be the lease's own; the block is not chosen yet.
  static constexpr BlockEntry to_draft() noexcept { return BlockEntry(kOwn | kBlockMask); }
  // As bits() returned them.
  static constexpr BlockEntry from_bits(uint32_t bits) noexcept { return BlockEntry(bits); }
  constexpr BlockEntry() noexcept : BlockEntry(kBlockMask) {}

  constexpr bool has_block() const noexcept { return block() != kBlockMask; }
  constexpr bool is_own() const noexcept { return (bits_ & kOwn) != 0; }
  constexpr bool is_pinned() const noexcept { return (bits_ & kPinned) != 0; }
  constexpr uint32_t block() const noexcept { return bits_ & kBlockMask; }
  constexpr uint32_t bits() const noexcept { return bits_; }
  friend constexpr bool operator==(BlockEntry, BlockEntry) noexcept = default;

 private:
  static constexpr uint32_t kOwn = 0x8000'0000U;
  static constexpr uint32_t kPinned = 0x4000'0000U;
  static constexpr uint32_t kBlockMask = pool::BlockPool::kNone;
  explicit constexpr BlockEntry(uint32_t bits) noexcept : bits_(bits) {}

  uint32_t bits_;
};

}  // namespace stemma::cache
