// Followers: which of a tier's entries follow a prefix (Purge::follows).
//
// Entries name their parents, and a tier may have lost some of them. So whoever purges first shows
// all entries of the scope and then asks about each. An entry is followed up until it is known: it
// reaches the prefix and goes, or it reaches a place before the prefix's end that is another one
// and stays. Where the way breaks off, it goes too, because forgetting too much is better than too
// little.
//
// Threading:  one thread at a time.
// Cost:       about 60 bytes an entry; O(1) a question, for all entries together.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "stemma/tier.h"

namespace stemma::tier {

class Followers {
 public:
  // Borrows the purge, which has `follows`.
  explicit Followers(const Purge& what) : what_(what) {}

  // An entry of the scope, whether the purge takes it or not. Throws std::bad_alloc.
  void show(const EntryKey& key, const EntryInfo& info);
  // Whether the purge takes it. After all were shown. Throws std::bad_alloc.
  enum class Goes : uint8_t {
    no,
    yes,
    unsure
  };  // unsure: it goes, and nobody can tell whether it follows.
  Goes ask(const EntryKey& key, const EntryInfo& info);

 private:
  enum class State : uint8_t { unknown, looking, stays, follows, unsure };
  struct Node {
    uint64_t parent = 0;
    uint32_t parent_end = 0xFFFF'FFFFU;  // Where the parent ends, if that is known.
    uint32_t end = 0;
    State state = State::unknown;
  };
  State look_at(uint64_t link, const Node& node) const noexcept;
  State find(uint64_t link);

  const Purge& what_;
  std::unordered_map<uint64_t, Node> nodes_;  // By the link of what they end.
};

}  // namespace stemma::tier
