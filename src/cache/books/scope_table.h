// Maps a scope to its root cell. Readers guess without a lock and verify later. Changes and
// verified lookups happen under the cache's lock.
//
// Threading:  guess() on any thread; everything else one thread at a time. Outgrown tables are kept
//             until the end, because a reader may still use them (together they are smaller than
//             the newest).
// Cost:       O(1) expected; about 150 bytes a scope.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "stemma/ids.h"
#include "stemma/retention.h"
#include "stemma/scope.h"

namespace stemma::cache {

class ScopeTable {
 public:
  struct Root {
    Scope scope;
    CellIndex cell = kNoCell;
    TenantId tenant = kNoTenant;  // As the caller said.
    uint32_t tenant_index = 0;    // Index into the quotas; 0 = no quota.
    bool hidden = false;
  };

  ScopeTable();
  // The scope's probable root, or kNoCell. Any thread.
  CellIndex guess(const Scope& scope) const noexcept;

  // Valid until the next add().
  const Root* find(const Scope& scope) const noexcept;
  const Root* find(CellIndex cell) const noexcept;
  // May throw std::bad_alloc before anything changes. hide() and remove() need no memory.
  void add(const Root& root);
  // find(scope) no longer finds it; find(cell) still does.
  void hide(CellIndex cell);
  void remove(CellIndex cell);  // Hides it if need be.
  size_t size() const noexcept { return size_; }
  uint64_t bytes() const noexcept;
  const std::vector<Root>& roots() const noexcept { return roots_; }  // Dead ones have no cell.

 private:
  struct Entry {
    std::atomic<uint64_t> tag{0};  // 0 empty, 1 removed, otherwise from the digest.
    std::atomic<uint32_t> cell{kNoCell};
    uint32_t root = 0;
  };
  struct Table {
    explicit Table(size_t n) : entries(std::make_unique<Entry[]>(n)), mask(n - 1) {}
    std::unique_ptr<Entry[]> entries;
    size_t mask;
  };
  static uint64_t tag_of(const Scope& scope) noexcept;
  Entry* locate(const Scope& scope) const noexcept;
  void insert(Table& table, uint32_t root);
  void rebuild(std::unique_ptr<Table> larger) noexcept;

  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<Table*> table_;
  std::vector<Root> roots_;
  std::vector<uint32_t> free_roots_;
  std::unordered_map<CellIndex, uint32_t> by_cell_;
  size_t size_ = 0;
  size_t used_ = 0;  // Entries that are not empty, removed ones included.
};

}  // namespace stemma::cache
