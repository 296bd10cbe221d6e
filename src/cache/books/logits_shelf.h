// A LogitsShelf keeps the last-token logits of cells, within a budget of bytes. The least recently
// used go first.
//
// Invariant:  a cell has at most one entry; bytes() never exceeds the budget.
// Threading:  one thread at a time; a Logits pointer may be read on any thread.
// Cost:       O(1) a call, plus one step for each entry that has to go.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "stemma/retention.h"

namespace stemma::cache {

using Logits = std::shared_ptr<const std::vector<float>>;

class LogitsShelf {
 public:
  explicit LogitsShelf(uint64_t budget_bytes) noexcept : budget_bytes_(budget_bytes) {}

  bool fits(size_t count) const noexcept {
    return count <= budget_bytes_ / sizeof(float) &&
           count * sizeof(float) + sizeof(Entry) <= budget_bytes_;
  }
  // Puts a cell's logits on the shelf, in the place of older ones. Calls `gone(cell)` for each cell
  // that lost its logits to them. Requires fits(). May throw std::bad_alloc before anything
  // changes.
  template <class Gone>
  void put(CellIndex cell, std::span<const float> values, Gone&& gone) {
    const uint64_t bytes = values.size() * sizeof(float) + sizeof(Entry);
    std::list<Entry> fresh;
    fresh.push_back(
        {cell, std::make_shared<const std::vector<float>>(values.begin(), values.end()), bytes});
    const auto [at, added] = at_.try_emplace(cell, fresh.begin());
    if (!added) {
      bytes_ -= at->second->bytes;
      entries_.erase(at->second);
      at->second = fresh.begin();
    }
    while (bytes_ + bytes > budget_bytes_ && !entries_.empty()) {
      const CellIndex oldest = entries_.front().cell;
      drop(oldest);
      gone(oldest);
    }
    entries_.splice(entries_.end(), fresh);
    bytes_ += bytes;
  }

  bool has(CellIndex cell) const noexcept { return at_.count(cell) != 0; }
  // A cell's logits, or null. use() makes them the most recently used.
  Logits use(CellIndex cell);
  Logits peek(CellIndex cell) const;
  void drop(CellIndex cell) noexcept;  // Does nothing if the cell has none.
  // The least recently used cell that `which` accepts, or kNoCell.
  template <class Which>
  CellIndex oldest(Which&& which) const {
    for (const Entry& entry : entries_) {
      if (which(entry.cell)) return entry.cell;
    }
    return kNoCell;
  }

  uint64_t bytes() const noexcept { return bytes_; }
  void check_invariants() const;

 private:
  struct Entry {
    CellIndex cell;
    Logits logits;
    uint64_t bytes;
  };

  const uint64_t budget_bytes_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // Least recently used first.
  std::unordered_map<CellIndex, std::list<Entry>::iterator> at_;
};

}  // namespace stemma::cache
