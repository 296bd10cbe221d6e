// A Chain numbers the blocks of a trace: each id becomes a word, and may appear again only after
// the block it first followed.
//
// Threading:  one thread at a time.
// Cost:       28 to 44 bytes a block; following a known path reads one record a block and needs no
//             lookup.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stemma/ids.h"

namespace stemma::replay {

class Chain {
 public:
  // Appends the words of the path `ids` to `out`; new ids become new blocks, first seen on `line`.
  // Returns an empty string, or says which id contradicts what and changes nothing.
  std::string follow(std::span<const uint64_t> ids, uint64_t line, std::vector<Token>& out);
  // Appends the path that ends with block `node` (1 is the first block, 0 none) then `fresh` new
  // blocks. Returns an empty string, or what is wrong.
  std::string extend(uint64_t node, uint64_t fresh, uint64_t line, std::vector<Token>& out);
  uint32_t depth(uint64_t node) const noexcept { return node == 0 ? 0 : nodes_[node - 1].depth; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(nodes_.size()); }

 private:
  // Node numbers are words plus 1; 0 is the parent of a request's first block.
  struct Node {
    uint64_t id = 0;
    uint32_t parent = 0;
    uint32_t last_child = 0;  // A guess for the next block.
    uint32_t depth = 0;
    uint32_t line = 0;
  };
  uint32_t find(uint64_t id) const noexcept;
  void add(uint64_t id, uint32_t parent, uint64_t line);
  void remove_last() noexcept;
  void grow();
  size_t slot_of(uint64_t id) const noexcept;
  bool full() const noexcept { return nodes_.size() >= Token{kTokenLimit} - 2; }

  std::vector<Node> nodes_;
  std::vector<uint32_t> slots_;  // A hash table of node numbers; 0 = empty.
  uint32_t first_child_ = 0;     // The guess for the first block of a request.
};

}  // namespace stemma::replay
