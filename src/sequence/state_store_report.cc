// What a StateStore reports about itself, and how it checks its records.
#include <new>

#include "base/check.h"
#include "sequence/state_store.h"

namespace stemma::sequence {

StateStore::Stats StateStore::stats() const noexcept {
  Stats stats = stats_;
  stats.entries = slots_.cached_blocks();
  stats.drafts = drafts_;
  stats.leased = held_entries_ - drafts_;
  stats.index_bytes = index_.bytes() + policy_->bytes() + slots_.bytes() +
                      entries_.capacity() * sizeof(Entry) + sizeof(*this);
  return stats;
}

Result<std::vector<StateStore::Info>> StateStore::list() const try {
  std::vector<Info> all;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    if (!slots_.is_cached(entry)) continue;
    const Entry& it = entries_[entry];
    Info info{it.home->first, it.depth, it.logits, it.bytes, slots_.pins(entry), {}};
    index_.read(place(entry), info.words);
    all.push_back(std::move(info));
  }
  return all;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a list of states");
}

void StateStore::check_invariants() const {
  index_.check_invariants();
  slots_.check_invariants();
  policy_->check_invariants();
  uint64_t bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t held = 0;
  uint64_t drafts = 0;
  uint64_t positions = 0;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    const Entry& it = entries_[entry];
    const bool kept = slots_.is_cached(entry);
    bytes += it.bytes;
    STEMMA_CHECK((it.bytes == 0) == slots_.is_free(entry));
    STEMMA_CHECK(kept ? it.home != nullptr : it.home == nullptr || slots_.is_draft(entry));
    if (slots_.is_draft(entry) || slots_.pins(entry) != 0) {
      ++held;
      held_bytes += it.bytes;
    }
    drafts += slots_.is_draft(entry) ? 1 : 0;
    if (!kept) {
      STEMMA_CHECK(!policy_->holds(entry));
      STEMMA_CHECK(slots_.is_draft(entry) || (it.media.empty() && it.words.empty()));
      continue;
    }
    positions += it.depth;
    // Every entry that may be evicted is known to the policy.
    STEMMA_CHECK(policy_->holds(entry) || slots_.pins(entry) != 0);
    STEMMA_CHECK(store_->size(entry) != 0 && store_->size(entry) <= it.bytes);
    STEMMA_CHECK(index_.entry_at(place(entry)) == entry);
  }
  STEMMA_CHECK(bytes == stats_.bytes && bytes <= stats_.budget_bytes);
  STEMMA_CHECK(held == held_entries_ && held_bytes == stats_.held_bytes && drafts == drafts_);
  STEMMA_CHECK(positions == stats_.positions);
}

}  // namespace stemma::sequence
