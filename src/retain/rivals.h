// Rivals: two simulated caches. They hold no blocks, only how much of each conversation they would
// have cached. One evicts by LRU, the other by the index. Both see every use; their simulated hits
// tell which of the two to trust on this traffic.
//
// They are not exact copies of a cache: a prefix that several conversations share counts only for
// its last user. Both make the same errors, and only their difference counts, in units of what
// chance could cause (the root of the sum of squares of the differences so far). The index is
// trusted as soon as it leads, both in tokens and in tokens weighted by depth (their cost to
// compute again): while it has learnt little it orders much like LRU, so early trust costs little.
// It is doubted once it trails by half such a deviation in either measure. So if both find the
// same, the cache is plain LRU. The contest never stops: an index that was doubted comes back once
// it has learnt.
//
// Threading:  one thread at a time.
// Cost:       30 bytes a conversation. use() O(1), amortised; no allocation after prepare().
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/index_lists.h"
#include "base/slab.h"

namespace stemma::retain {

class Rivals {
  enum Rival : uint8_t { kLru, kIndex };

 public:
  static constexpr uint32_t kLevels = 512;
  static constexpr uint32_t kNone = base::IndexLists::kNone;

  // For at most that many conversations. Returns false if out of memory.
  [[nodiscard]] bool create(uint32_t conversations);
  [[nodiscard]] bool prepare(uint32_t conversations);

  // Conversation `who` uses a path of `depth` tokens. Of these, `known` were used before, last by
  // `from` (kNone: by none). `from` keeps what it had of the rest, or gives it to `rest` unless
  // that is kNone. Then call place() for `who` and `rest`.
  void use(uint32_t who, uint32_t from, uint32_t rest, uint32_t known, uint32_t depth,
           uint64_t capacity_tokens) noexcept;
  // Sets its current level in the index; the lowest level is evicted first.
  void place(uint32_t who, uint32_t level) noexcept;
  void forget(uint32_t who) noexcept;
  // Whether the index rival holds anything of it.
  bool index_holds(uint32_t who) const noexcept { return shares_[who].own[kIndex] != 0; }

  bool index_is_ahead() const noexcept { return ahead_; }

  uint64_t bytes() const noexcept {
    return shares_.bytes() + levels_.bytes() + lists_[0].bytes() + lists_[1].bytes();
  }
  void check_invariants() const;

 private:
  struct Share {
    std::array<uint32_t, 2> own;  // Tokens each rival has, from `base` on.
    uint32_t base;                // Up to here the path belongs to a later user.
  };
  struct Score {
    double lead = 0;
    double squares = 0;
    void add(double difference) noexcept {
      lead += difference;
      squares += difference * difference;
    }
    // `least` is in deviations.
    bool above(double least) const noexcept { return lead > least * std::sqrt(squares); }
  };
  void evict(Rival rival, uint64_t capacity_tokens) noexcept;
  void unlist(Rival rival, uint32_t who) noexcept;

  base::Slab<Share> shares_;
  base::Slab<uint16_t> levels_;
  std::array<base::IndexLists, 2> lists_;  // LRU: one, oldest first. Index: one for each level.
  std::array<uint64_t, kLevels / 64> filled_ = {};
  std::array<uint64_t, 2> held_ = {};
  Score plain_;
  Score deep_;
  bool ahead_ = false;
};

}  // namespace stemma::retain
