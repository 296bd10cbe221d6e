#include "cache/books/scope_table.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/vectors.h"

namespace stemma::cache {

ScopeTable::ScopeTable() {
  tables_.push_back(std::make_unique<Table>(16));
  table_.store(tables_.back().get(), std::memory_order_release);
}

uint64_t ScopeTable::tag_of(const Scope& scope) noexcept {
  uint64_t tag;
  std::memcpy(&tag, scope.digest().data(), sizeof tag);
  return tag < 2 ? tag + 2 : tag;
}

CellIndex ScopeTable::guess(const Scope& scope) const noexcept {
  const uint64_t tag = tag_of(scope);
  const Table& table = *table_.load(std::memory_order_acquire);
  for (size_t i = tag, probes = 0; probes <= table.mask; ++i, ++probes) {
    const Entry& entry = table.entries[i & table.mask];
    const uint64_t seen = entry.tag.load(std::memory_order_acquire);
    if (seen == tag) return entry.cell.load(std::memory_order_relaxed);
    if (seen == 0) break;
  }
  return kNoCell;
}

ScopeTable::Entry* ScopeTable::locate(const Scope& scope) const noexcept {
  const uint64_t tag = tag_of(scope);
  const Table& table = *tables_.back();
  for (size_t i = tag;; ++i) {
    Entry& entry = table.entries[i & table.mask];
    const uint64_t seen = entry.tag.load(std::memory_order_relaxed);
    if (seen == 0) return nullptr;
    if (seen == tag && roots_[entry.root].scope == scope) return &entry;
  }
}

const ScopeTable::Root* ScopeTable::find(const Scope& scope) const noexcept {
  const Entry* entry = locate(scope);
  return entry == nullptr ? nullptr : &roots_[entry->root];
}

const ScopeTable::Root* ScopeTable::find(CellIndex cell) const noexcept {
  const auto it = by_cell_.find(cell);
  return it == by_cell_.end() ? nullptr : &roots_[it->second];
}

void ScopeTable::insert(Table& table, uint32_t root) {
  const uint64_t tag = tag_of(roots_[root].scope);
  size_t i = tag;
  while (table.entries[i & table.mask].tag.load(std::memory_order_relaxed) > 1) ++i;
  Entry& entry = table.entries[i & table.mask];
  if (entry.tag.load(std::memory_order_relaxed) == 0) ++used_;
  entry.root = root;
  entry.cell.store(roots_[root].cell, std::memory_order_relaxed);
  entry.tag.store(tag, std::memory_order_release);
}

void ScopeTable::rebuild(std::unique_ptr<Table> larger) noexcept {
  if (larger == nullptr) {
    // Full of removed entries: cleared in place. A concurrent reader may miss its scope; the lookup
    // under the lock then finds it.
    for (size_t i = 0; i <= tables_.back()->mask; ++i) {
      tables_.back()->entries[i].tag.store(0, std::memory_order_relaxed);
    }
  } else {
    tables_.push_back(std::move(larger));
  }
  used_ = 0;
  for (uint32_t root = 0; root < roots_.size(); ++root) {
    if (roots_[root].cell != kNoCell && !roots_[root].hidden) insert(*tables_.back(), root);
  }
  table_.store(tables_.back().get(), std::memory_order_release);
}

void ScopeTable::add(const Root& root) {
  const auto index =
      free_roots_.empty() ? static_cast<uint32_t>(roots_.size()) : free_roots_.back();
  // First everything that needs memory, including what a later remove() needs.
  base::make_room(roots_, 1);
  base::make_room(free_roots_, roots_.size() + 1 - free_roots_.size());
  const bool full = (used_ + 1) * 2 > tables_.back()->mask + 1;
  std::unique_ptr<Table> larger;
  if (full) {
    size_t n = tables_.back()->mask + 1;
    while (n < (size_ + 1) * 4) n *= 2;
    base::make_room(tables_, 1);
    if (n > tables_.back()->mask + 1) larger = std::make_unique<Table>(n);
  }
  by_cell_.insert_or_assign(root.cell, index);

  if (free_roots_.empty()) {
    roots_.push_back(root);
  } else {
    free_roots_.pop_back();
    roots_[index] = root;
  }
  ++size_;
  if (full) {
    rebuild(std::move(larger));
  } else {
    insert(*tables_.back(), index);
  }
}

void ScopeTable::hide(CellIndex cell) {
  Root& root = roots_[by_cell_.at(cell)];
  Entry* entry = locate(root.scope);
  STEMMA_CHECK(entry != nullptr && !root.hidden);
  entry->cell.store(kNoCell, std::memory_order_relaxed);
  entry->tag.store(1, std::memory_order_release);
  root.hidden = true;
  --size_;
}

void ScopeTable::remove(CellIndex cell) {
  const auto it = by_cell_.find(cell);
  STEMMA_CHECK(it != by_cell_.end());
  const uint32_t index = it->second;
  if (!roots_[index].hidden) hide(cell);
  by_cell_.erase(it);
  roots_[index].cell = kNoCell;
  free_roots_.push_back(index);
}

uint64_t ScopeTable::bytes() const noexcept {
  uint64_t total = roots_.capacity() * sizeof(Root) + free_roots_.capacity() * sizeof(uint32_t) +
                   by_cell_.size() * 32 + by_cell_.bucket_count() * sizeof(void*);
  for (const auto& table : tables_) total += (table->mask + 1) * sizeof(Entry);
  return total;
}

}  // namespace stemma::cache
