// Baseline: what paged engines do. Every block is named by a 64-bit hash of its tokens and of the
// hash before it; a table maps hashes to blocks; every block has a count of users and a place in
// the queue of unused blocks, which is also the LRU.
//
// Nothing is verified: two prompts whose hashes collide share blocks. Only the order of release
// makes leaves go before their ancestors; the structure does not. All memory is taken at
// construction.
// Threading: one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/support.h"

namespace stemma::bench {

class HashChain {
 public:
  // What one request holds. Reused between requests so that its vectors keep their room.
  struct Request {
    std::vector<uint32_t> blocks;
    uint64_t hash = kSeed;  // Of all published blocks of the request.
    size_t published = 0;
  };

  explicit HashChain(uint32_t capacity_blocks)
      : blocks_(capacity_blocks + 1),
        table_(std::bit_ceil(size_t{capacity_blocks} * 2)),
        mask_(table_.size() - 1),
        queue_(capacity_blocks) {
    blocks_[queue_] = {queue_, queue_, 1, 0};
    for (uint32_t i = 0; i < capacity_blocks; ++i) append(i);
  }

  uint32_t free_blocks() const noexcept { return free_; }

  // Finds the longest run of cached blocks, at most `limit`, and takes a reference on each.
  size_t match(std::span<const Token> tokens, size_t limit, Request& request) {
    request.blocks.clear();
    request.hash = kSeed;
    request.published = 0;
    for (size_t i = 0; i < limit; ++i) {
      const uint64_t hash = step(request.hash, tokens.data() + i * kBlockTokens);
      const uint32_t found = table_[find(hash)].block;
      if (found == kNone) break;
      if (blocks_[found].users++ == 0) unlink(found);
      request.blocks.push_back(found);
      request.hash = hash;
    }
    request.published = request.blocks.size();
    return request.blocks.size();
  }

  // Takes `count` blocks, least recently released first; false, with nothing taken, if there are
  // too few.
  bool draft(size_t count, Request& request) {
    if (free_ < count) return false;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t victim = blocks_[queue_].next;
      if (blocks_[victim].hash != 0) erase(victim);
      unlink(victim);
      blocks_[victim].users = 1;
      request.blocks.push_back(victim);
    }
    return true;
  }

  // Makes the request's blocks up to `tokens.size()` findable.
  void commit(std::span<const Token> tokens, Request& request) {
    for (; request.published < tokens.size() / kBlockTokens; ++request.published) {
      const uint32_t block = request.blocks[request.published];
      request.hash = step(request.hash, tokens.data() + request.published * kBlockTokens);
      Entry& entry = table_[find(request.hash)];
      if (entry.block != kNone) continue;  // Another request was faster: a duplicate.
      entry = {request.hash, block};
      blocks_[block].hash = request.hash;
    }
  }

  // Lets everything go, last block first, so that it is reused first.
  void release(Request& request) {
    for (size_t i = request.blocks.size(); i-- > 0;) {
      const uint32_t block = request.blocks[i];
      if (--blocks_[block].users == 0) append(block);
    }
    request.blocks.clear();
  }

 private:
  struct Block {
    uint32_t previous = 0, next = 0;
    uint32_t users = 0;
    uint64_t hash = 0;  // 0: not in the table.
  };
  struct Entry {
    uint64_t hash = 0;
    uint32_t block = kNone;
  };
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  static constexpr uint64_t kSeed = 0x243F'6A88'85A3'08D3ULL;

  static uint64_t fold(uint64_t a, uint64_t b) noexcept {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  // Eight words, two at a time, in two independent lanes.
  static uint64_t step(uint64_t parent, const Token* tokens) noexcept {
    uint64_t words[8];
    std::memcpy(words, tokens, sizeof words);
    constexpr uint64_t kA = 0xA076'1D64'78BD'642FULL;
    constexpr uint64_t kB = 0xE703'7ED1'A0B4'28DBULL;
    uint64_t left = fold(words[0] ^ kA, words[1] ^ parent);
    uint64_t right = fold(words[2] ^ kB, words[3] ^ parent);
    left = fold(words[4] ^ kA, words[5] ^ left);
    right = fold(words[6] ^ kB, words[7] ^ right);
    return fold(left ^ kA, right ^ kB) | 1;  // Never 0.
  }

  // Where `hash` is, or the empty place where it would go.
  size_t find(uint64_t hash) const noexcept {
    size_t place = (hash >> 1) & mask_;
    while (table_[place].block != kNone && table_[place].hash != hash) place = (place + 1) & mask_;
    return place;
  }

  void erase(uint32_t block) noexcept {
    size_t hole = find(blocks_[block].hash);
    blocks_[block].hash = 0;
    for (size_t next = (hole + 1) & mask_; table_[next].block != kNone; next = (next + 1) & mask_) {
      const size_t home = (table_[next].hash >> 1) & mask_;
      if (((next - home) & mask_) < ((next - hole) & mask_)) continue;
      table_[hole] = table_[next];
      hole = next;
    }
    table_[hole].block = kNone;
  }

  void append(uint32_t block) noexcept {
    const uint32_t last = blocks_[queue_].previous;
    blocks_[block].previous = last;
    blocks_[block].next = queue_;
    blocks_[last].next = block;
    blocks_[queue_].previous = block;
    ++free_;
  }

  void unlink(uint32_t block) noexcept {
    blocks_[blocks_[block].previous].next = blocks_[block].next;
    blocks_[blocks_[block].next].previous = blocks_[block].previous;
    --free_;
  }

  std::vector<Block> blocks_;
  std::vector<Entry> table_;
  size_t mask_;
  uint32_t queue_;  // The list's head, one past the last block.
  uint32_t free_ = 0;
};

}  // namespace stemma::bench
