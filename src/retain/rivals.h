// Rivals: two caches that hold no blocks, only how much of each conversation they would have, one choosing by
// LRU, the other by the index. Both see every use; what each would have found says which of the two is to
// be trusted on this traffic.
//
// They are no exact copies of a cache: a prefix that several conversations share counts as its last user's
// alone. What they get wrong they get wrong alike, and only their difference is looked at, measured by what
// chance could have done (the root of the sum of squares of the differences so far). The index is trusted
// as soon as it leads, in tokens and in tokens weighted by depth (what they cost to compute again): while little
// was learnt it orders much as LRU does, so little is lost by believing it early. It is doubted once it trails
// by half such a deviation in either. So a cache is plain LRU where the two find the same, and the contest goes on
// whoever decides: an index that was doubted and has learnt since comes back.
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

  // For that many conversations at most. False when the system gives no memory.
  [[nodiscard]] bool create(uint32_t conversations);
  [[nodiscard]] bool prepare(uint32_t conversations);

  // `who` uses a path of `depth` tokens, of which `known` were used before, last by `from` (kNone: nobody). What
  // `from` had of the rest stays its own, or becomes `rest`'s if that is somebody. place() follows, for
  // `who` and `rest`.
  void use(uint32_t who, uint32_t from, uint32_t rest, uint32_t known, uint32_t depth,
           uint64_t capacity_tokens) noexcept;
  // Where it stands by the index now; the lowest goes first.
  void place(uint32_t who, uint32_t level) noexcept;
  void forget(uint32_t who) noexcept;
  // Whether it matters where it stands.
  bool index_holds(uint32_t who) const noexcept { return shares_[who].own[kIndex] != 0; }

  bool index_is_ahead() const noexcept { return ahead_; }

  uint64_t bytes() const noexcept {
    return shares_.bytes() + levels_.bytes() + lists_[0].bytes() + lists_[1].bytes();
  }
  void check_invariants() const;

 private:
  struct Share {
    std::array<uint32_t, 2> own;  // Tokens each rival has, from `base` on.
    uint32_t base;                // Up to here the path is a later user's.
  };
  struct Score {
    double lead = 0;
    double squares = 0;
    void add(double difference) noexcept {
      lead += difference;
      squares += difference * difference;
    }
    // In deviations.
    bool above(double least) const noexcept { return lead > least * std::sqrt(squares); }
  };
  void evict(Rival rival, uint64_t capacity_tokens) noexcept;
  void unlist(Rival rival, uint32_t who) noexcept;

  base::Slab<Share> shares_;
  base::Slab<uint16_t> levels_;
  std::array<base::IndexLists, 2>
      lists_;  // Of LRU one, oldest first; of the index one for each level.
  std::array<uint64_t, kLevels / 64> filled_ = {};
  std::array<uint64_t, 2> held_ = {};
  Score plain_;
  Score deep_;
  bool ahead_ = false;
};

}  // namespace stemma::retain
