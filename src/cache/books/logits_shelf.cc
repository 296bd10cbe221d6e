#include "cache/books/logits_shelf.h"

#include "base/check.h"

namespace stemma::cache {

Logits LogitsShelf::use(CellIndex cell) {
  const auto it = at_.find(cell);
  if (it == at_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, it->second);
  return it->second->logits;
}

Logits LogitsShelf::peek(CellIndex cell) const {
  const auto it = at_.find(cell);
  return it == at_.end() ? nullptr : it->second->logits;
}

void LogitsShelf::drop(CellIndex cell) noexcept {
  const auto it = at_.find(cell);
  if (it == at_.end()) return;
  bytes_ -= it->second->bytes;
  entries_.erase(it->second);
  at_.erase(it);
}

void LogitsShelf::check_invariants() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.bytes;
  STEMMA_CHECK(bytes == bytes_ && bytes_ <= budget_bytes_ && at_.size() == entries_.size());
}

}  // namespace stemma::cache
