#include "sequence/state_store.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/vectors.h"

namespace stemma::sequence {

StateStore::StateStore(const Options& options, Lexicon& lexicon)
    : clock_(options.clock != nullptr ? *options.clock : Clock::monotonic()), lexicon_(lexicon) {
  stats_.budget_bytes = options.budget_bytes;
}

Result<std::unique_ptr<StateStore>> StateStore::create(const Options& options,
                                                       Lexicon& lexicon) try {
  if (!knows_policy(options.policy)) {
    return Error(Errc::invalid_argument, "no such retention policy");
  }
  if (options.max_entries > pool::BlockPool::kMaxBlocks ||
      options.max_positions / StateIndex::kCellTokens + 2 * uint64_t{options.max_entries} >=
          tree::kIndexMask - 1) {
    return Error(Errc::invalid_argument, "more saved states or positions than can be numbered");
  }
  std::unique_ptr<StateStore> store(new StateStore(options, lexicon));
  store->policy_ = make_policy(options.policy, options.max_entries);
  store->store_ = make_memory_store(options.max_entries, 0);
  if (store->policy_ == nullptr || store->store_ == nullptr ||
      !store->slots_.create(options.max_entries) ||
      !store->index_.create(options.max_positions, options.max_entries)) {
    return Error(Errc::out_of_memory, "no memory for a store of states");
  }
  return store;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a store of states");
}

StateStore::~StateStore() {
  STEMMA_CHECK(held_entries_ == 0);  // Drafts and leases end before the store.
  clear();
}

// ---- Finding and leasing ------------------------------------------------------------------------

StateCandidate StateStore::candidate(uint32_t entry, uint32_t common) const noexcept {
  if (entry == StateIndex::kNone) return {};
  const Entry& it = entries_[entry];
  return {entry, it.depth, common, it.logits, it.bytes, it.generation};
}

StateMatch StateStore::find_words(const Scope& scope, std::span<const uint32_t> words) noexcept {
  const StateIndex::Found found = index_.find(scope, words);
  return {candidate(found.exact, found.depth), candidate(found.longest, found.common)};
}

Result<StateLease> StateStore::lease(const StateCandidate& found) noexcept {
  if (!found || found.entry >= entries_.size() ||
      entries_[found.entry].generation != found.generation || !slots_.is_cached(found.entry)) {
    return Error(Errc::stale, "the state is gone");
  }
  if (slots_.pins(found.entry) == 0) {
    ++held_entries_;
    stats_.held_bytes += found.bytes;
  }
  slots_.pin(found.entry);
  return StateLease(this, found);
}

void StateStore::end_lease(uint32_t entry) noexcept {
  const bool gone = slots_.is_dying(entry);
  if (!slots_.unpin(entry)) return;
  --held_entries_;
  stats_.held_bytes -= entries_[entry].bytes;
  if (gone) {
    free_bytes(entry);
  } else if (!policy_->holds(entry)) {
    // It came up for eviction while it was leased: count that as a use that ends now.
    note_use(entry, entries_[entry].touch);
  }
}

void StateStore::note_use(uint32_t entry, const Touch& touch) noexcept {
  // The time to live starts again now, whenever it was set.
  const uint64_t now = now_ns();
  const uint64_t ttl =
      touch.deadline_ns == kNever ? kNever : elapsed_ns(touch.now_ns, touch.deadline_ns);
  Touch& last = entries_[entry].touch;
  last = touch;
  last.now_ns = now;
  last.deadline_ns = deadline_after(now, ttl);
  policy_->touch(entry, last);
}

void StateStore::used(const StateLease& lease, const Touch& touch) noexcept {
  if (lease.store_ != this || !slots_.is_cached(lease.found_.entry)) return;
  Entry& it = entries_[lease.found_.entry];
  if (it.owner != touch.session) it.owner = kNoSession;
  note_use(lease.found_.entry, touch);
}

// ---- Letting go ---------------------------------------------------------------------------------

void StateStore::free_bytes(uint32_t entry) noexcept {
  Entry& it = entries_[entry];
  store_->drop(entry);
  stats_.bytes -= it.bytes;
  it.bytes = 0;
}

void StateStore::put_away(uint32_t entry, bool replaced) noexcept {
  Entry& it = entries_[entry];
  if (!replaced) index_.remove(place(entry));
  policy_->remove(entry);
  lexicon_.drop(it.media);
  stats_.positions -= it.depth;
  it.home = nullptr;
  it.label = {};
  ++it.generation;
  const bool leased = slots_.pins(entry) != 0;
  slots_.release(entry);
  if (!leased) free_bytes(entry);
}

uint32_t StateStore::next_victim() noexcept {
  for (;;) {
    const CellIndex entry = policy_->victim(now_ns(), false, kNoTenant).cell;
    if (entry == kNoCell) return StateIndex::kNone;
    if (slots_.pins(entry) == 0) return entry;
    policy_->remove(entry);  // end_lease() brings it back.
  }
}

uint32_t StateStore::evict(uint32_t n) noexcept {
  uint32_t went = 0;
  for (; went < n; ++went) {
    const uint32_t victim = next_victim();
    if (victim == StateIndex::kNone) break;
    put_away(victim, false);
    ++stats_.evictions;
  }
  return went;
}

StateStore::Leaving StateStore::evict_for(const Scope& scope, uint32_t depth, uint64_t bytes) {
  const Need need{scope, depth, 0, bytes};
  if (has_room(need) || !check_fits(need)) return {};
  const uint32_t victim = next_victim();
  if (victim == StateIndex::kNone) return {};
  Leaving leaving{lease_entry(victim), std::move(entries_[victim].label)};
  put_away(victim, false);
  ++stats_.evictions;
  return leaving;
}

const PartLabel& StateStore::label(const StateLease& lease) const noexcept {
  return entries_[lease.found_.entry].label;
}

void StateStore::set_rank(const StateLease& lease, uint64_t rank) noexcept {
  if (!slots_.is_cached(lease.found_.entry)) return;
  entries_[lease.found_.entry].label.rank = rank;
}

uint64_t StateStore::rank(uint32_t entry) const noexcept {
  return slots_.is_cached(entry) ? entries_[entry].label.rank : 0;
}

StateLease StateStore::lease_entry(uint32_t entry) noexcept {
  if (entry >= entries_.size() || !slots_.is_cached(entry)) return {};
  Result<StateLease> held = lease(candidate(entry, entries_[entry].depth));
  return held ? *std::move(held) : StateLease();
}

bool StateStore::remove(const StateLease& lease) noexcept {
  if (lease.store_ != this || !slots_.is_cached(lease.found_.entry)) return false;
  put_away(lease.found_.entry, false);
  ++stats_.removed;
  return true;
}

void StateStore::end_session(SessionId session) noexcept {
  if (session == kNoSession) return;
  Touch over;
  over.now_ns = now_ns();
  over.phase = over.expired_phase = SessionPhase::ended;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    Entry& it = entries_[entry];
    if (it.owner != session || !slots_.is_cached(entry)) continue;
    it.owner = kNoSession;
    it.touch = over;
    if (policy_->holds(entry)) policy_->touch(entry, over);  // Otherwise end_lease() does it.
  }
}

template <class Match>
uint32_t StateStore::forget(const Match& match) noexcept {
  uint32_t went = 0;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    Entry& it = entries_[entry];
    if (it.home == nullptr || !match(it.home->first)) continue;
    if (slots_.is_draft(entry)) {
      index_.give_back(it.home, it.depth);
      it.home = nullptr;
    } else {
      put_away(entry, false);
      ++went;
    }
  }
  return went;
}

uint32_t StateStore::drop_scope(const Scope& scope) noexcept {
  return forget([&](const Scope& one) { return one == scope; });
}

void StateStore::beyond(const Scope& scope, std::span<const uint32_t> words, uint32_t keep,
                        std::vector<uint32_t>& out) const {
  index_.beginning_with(scope, words, out);
  std::erase_if(out, [&](uint32_t entry) { return entries_[entry].depth <= keep; });
}

void StateStore::drop(std::span<const uint32_t> entries) noexcept {
  for (const uint32_t entry : entries) put_away(entry, false);
}

uint32_t StateStore::clear() noexcept {
  return forget([](const Scope&) { return true; });
}

// ---- Storing ------------------------------------------------------------------------------------

Result<void> StateStore::check_fits(const Need& need) const {
  if (need.bytes > stats_.budget_bytes) {
    return Error(Errc::out_of_range, "the state is larger than the budget");
  }
  if (need.bytes > stats_.budget_bytes - stats_.held_bytes || held_entries_ == slots_.capacity()) {
    return Error(Errc::out_of_blocks, "states in use leave no room for this one");
  }
  if (index_.cells_needed(need.scope, need.depth) <= index_.free_cells()) return {};
  if (!index_.could_hold(need.depth)) {
    return Error(Errc::out_of_range, "the state has more positions than the index can hold");
  }
  std::vector<StateIndex::Place> leased;
  for (uint32_t entry = 0; entry < entries_.size(); ++entry) {
    if (slots_.is_cached(entry) && slots_.pins(entry) != 0) leased.push_back(place(entry));
  }
  if (!index_.fits_beside(leased, need.scope, need.depth)) {
    return Error(Errc::out_of_blocks, "states in use leave no room in the index for this one");
  }
  return {};
}

bool StateStore::has_room(const Need& need) const noexcept {
  return need.bytes <= stats_.budget_bytes - stats_.bytes && slots_.free_blocks() != 0 &&
         index_.cells_needed(need.scope, need.depth) <= index_.free_cells();
}

Result<void> StateStore::make_room(const Need& need, uint32_t old, bool& replaced) noexcept {
  while (!has_room(need)) {
    if (old != StateIndex::kNone && !replaced && slots_.pins(old) == 0) {
      // Its successor is being written: losing it early is better than losing another entry.
      put_away(old, false);
      replaced = true;
      continue;
    }
    if (evict(1) == 0) return Error(Errc::out_of_blocks, "no more states can go");
  }
  return {};
}

Result<StateDraft> StateStore::draft(const Need& need) {
  STEMMA_TRY(StateIndex::Home* const home, index_.promise(need.scope, need.depth));
  const uint32_t entry = slots_.draft();
  STEMMA_CHECK(entry < entries_.size());
  const Result<std::span<uint8_t>> memory = store_->open(entry, need.bytes);
  if (!memory) {
    slots_.release(entry);
    index_.give_back(home, need.depth);
    return memory.error();
  }
  Entry& it = entries_[entry];
  it.home = home;
  it.depth = need.depth;
  it.logits = need.logits;
  it.bytes = need.bytes;
  stats_.bytes += need.bytes;
  stats_.held_bytes += need.bytes;
  ++held_entries_;
  ++drafts_;
  StateDraft draft;
  draft.store_ = this;
  draft.entry_ = entry;
  // Logits first: they need alignment, and what a shorter state leaves unused is behind both.
  draft.logits_ = {reinterpret_cast<float*>(memory->data()), need.logits};
  draft.state_ = memory->subspan(draft.logits_.size_bytes());
  return draft;
}

Result<StateDraft> StateStore::reserve(const Scope& scope, const Text& text, uint32_t depth,
                                       uint64_t bytes, uint32_t logits) try {
  if (depth > text.length()) return Error(Errc::out_of_range, "deeper than the text", depth);
  if (depth == 0 || text.floor(depth) != depth) {
    return Error(Errc::invalid_argument, "a state's depth is the end of a unit", depth);
  }
  if (bytes == 0) return Error(Errc::invalid_argument, "a state has bytes");
  const uint64_t logits_bytes = uint64_t{logits} * sizeof(float);
  const uint64_t all = bytes > ~uint64_t{0} - logits_bytes ? ~uint64_t{0} : bytes + logits_bytes;
  const Need need{scope, depth, logits, all};
  if (const Result<void> fits = check_fits(need); !fits) {
    ++stats_.refused_too_large;
    return fits.error();
  }

  // Take all the memory now, except for the bytes and the index.
  const std::span<const uint32_t> key = text.all().first(depth);
  std::vector<uint32_t> words(key.begin(), key.end());
  const uint32_t slots = slots_.fresh_after(1);
  if (slots > entries_.size()) {
    base::make_room(entries_, slots - entries_.size());
    entries_.resize(slots);
  }
  if (!slots_.prepare(1) || (slots != 0 && !policy_->prepare(slots - 1))) {
    return Error(Errc::out_of_memory, "no memory for the books of a state");
  }
  std::vector<uint32_t> media;
  STEMMA_TRY_VOID(lexicon_.hold(text, depth, media));

  bool replaced = false;
  const Result<void> room = make_room(need, index_.at(scope, key), replaced);
  Result<StateDraft> drafted = room ? draft(need) : Result<StateDraft>(room.error());
  if (!drafted) {
    lexicon_.drop(media);
    if (replaced) ++stats_.evictions;
    return drafted.error();
  }
  Entry& it = entries_[drafted->entry_];
  it.replaces = replaced;
  it.words = std::move(words);
  it.media = std::move(media);
  return drafted;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for the books of a state");
}

Result<void> StateStore::commit(uint32_t entry, const Touch& touch, PartLabel&& label) noexcept {
  Entry& it = entries_[entry];
  if (it.home == nullptr) return Error(Errc::stale, "the scope was dropped");
  const StateIndex::Put put = index_.put(it.home, it.words, entry);
  it.cell = put.cell;
  it.owner = touch.session;
  it.label = std::move(label);
  std::vector<uint32_t>().swap(it.words);
  slots_.publish(entry);
  --held_entries_;
  --drafts_;
  stats_.held_bytes -= it.bytes;
  stats_.positions += it.depth;
  ++stats_.stores;
  if (put.before != StateIndex::kNone) put_away(put.before, true);
  if (put.before != StateIndex::kNone || it.replaces) ++stats_.replaced;
  note_use(entry, touch);
  return {};
}

void StateStore::abandon(uint32_t entry) noexcept {
  Entry& it = entries_[entry];
  if (it.home != nullptr) index_.give_back(it.home, it.depth);
  it.home = nullptr;
  std::vector<uint32_t>().swap(it.words);
  lexicon_.drop(it.media);
  if (it.replaces) ++stats_.evictions;
  --held_entries_;
  --drafts_;
  stats_.held_bytes -= it.bytes;
  slots_.release(entry);
  free_bytes(entry);
}

}  // namespace stemma::sequence
