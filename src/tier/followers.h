// Followers: which of a tier's entries follow a prefix (Purge::follows).
//
// Entries name their parents, and a tier may have lost some parents. So a purge first shows all
// entries of the scope, then asks about each. The search walks from an entry to its parents. If it
// reaches the prefix, the entry goes; if it reaches another prefix that ends before, the entry
// stays. If a parent is missing, the entry goes too, because forgetting too much is better than too
// little.
//
// Threading:  one thread at a time.
// Cost:       about 60 bytes an entry; O(1) a question, averaged over all entries.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "stemma/tier/tier.h"

namespace stemma::tier {

class Followers {
 public:
  // Borrows the purge, which has `follows`.
  explicit Followers(const Purge& what) : what_(what) {}

  // Shows an entry of the scope, whether or not the purge takes it. Throws std::bad_alloc.
  void show(const EntryKey& key, const EntryInfo& info);
  // Whether the purge takes it. Show all entries first. Throws std::bad_alloc.
  enum class Goes : uint8_t { no, yes, unsure };  // unsure: it goes, but may not follow.
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
  std::unordered_map<uint64_t, Node> nodes_;  // By the link of the prefix they end.
};

}  // namespace stemma::tier
