// StateStore: keeps whole states of opaque engines within a byte budget. States are anchored at the
// exact depth they were saved at, found by their words, and leased while in use.
//
//   reserve() --> draft --commit()--> kept --evicted, replaced, removed, dropped--> gone
//                   '-- ~StateDraft() --> nothing           (while leased: only out of sight)
//
// A lookup changes nothing. Lease a state to use it, and call used() afterwards, which tells the
// policy. Room is made before memory is taken: the state that will be replaced goes first, then
// those that the retention policy chooses. A state that could not fit even if everything evictable
// went is refused before anything is evicted.
//
// Invariant:  bytes of drafts + kept + leased ones out of sight == stats().bytes <= budget_bytes; a
//             leased state is never evicted, overwritten, moved or freed; one kept state for each
//             scope and words.
// Threading:  one thread at a time. StateDraft::seal() and StateLease::read(), which look at every
//             byte, and writing a draft, may run beside it.
// Ownership:  owns the bytes. The Lexicon outlives the store; drafts and leases end before it.
// Cost:       find(): as StateIndex::find(), whatever the number of entries. reserve(): O(words +
//             evicted). commit(): O(words), and a checksum over the bytes. About 320 bytes an entry
//             besides the index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "pool/block_pool.h"
#include "sequence/lexicon.h"
#include "sequence/part_label.h"
#include "sequence/state_index.h"
#include "sequence/state_lease.h"
#include "stemma/byte_store.h"
#include "stemma/clock.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/scope.h"

namespace stemma::sequence {

class StateStore {
 public:
  struct Options {
    uint64_t budget_bytes = 0;
    uint32_t max_entries = 1024;           // Including drafts, and leased states out of sight.
    uint64_t max_positions = 1ULL << 24U;  // In the index; shared ones count once.
    std::string_view policy = "lru";
    const Clock* clock = nullptr;  // Null: Clock::monotonic().
  };
  // Error: invalid_argument (an unknown policy, more than can be numbered), out_of_memory.
  static Result<std::unique_ptr<StateStore>> create(const Options& options, Lexicon& lexicon);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  // Finds states that help with these words. exact.depth and longest.common are at most `at_most`,
  // and not inside a unit. Texts come from the store's lexicon.
  StateMatch find(const Scope& scope, const Text& text, uint32_t at_most) noexcept {
    return find_words(scope, text.all().first(text.floor(std::min(at_most, text.length()))));
  }
  // The same for words that end with a unit.
  StateMatch find_words(const Scope& scope, std::span<const uint32_t> words) noexcept;

  // Error: stale (the candidate is gone, or was none).
  Result<StateLease> lease(const StateCandidate& found) noexcept;
  // Tells the policy that the leased state was used. Harmless if the state is out of sight.
  void used(const StateLease& lease, const Touch& touch = {}) noexcept;

  // Reserves room for the state of the first `depth` positions of `text`: `bytes` bytes and so many
  // logits. Until commit() the state it will replace stays, if there is room for both.
  // Error: invalid_argument (depth 0 or inside a unit, no bytes), out_of_range (depth beyond the
  // text; more than the whole budget or index), out_of_blocks (more than leases and drafts leave);
  // these change nothing. out_of_memory, which changes nothing except that room was made.
  Result<StateDraft> reserve(const Scope& scope, const Text& text, uint32_t depth, uint64_t bytes,
                             uint32_t logits = 0);

  // Makes room like reserve(), one state at a time, and returns each evicted state. It is out of
  // sight, and its bytes count and stay until the lease ends. No lease: there is room already, or
  // reserve() will say why not.
  struct Leaving {
    StateLease lease;
    PartLabel label;
  };
  Leaving evict_for(const Scope& scope, uint32_t depth, uint64_t bytes);
  // The label that commit() got for a kept state.
  const PartLabel& label(const StateLease& lease) const noexcept;
  // Does nothing if the state is out of sight.
  void set_rank(const StateLease& lease, uint64_t rank) noexcept;
  // All kept states are among the entries [0, entries()). No lease: nothing is kept there.
  uint32_t entries() const noexcept { return static_cast<uint32_t>(entries_.size()); }
  StateLease lease_entry(uint32_t entry) noexcept;
  // The rank in its label; 0: nothing is kept there, or it has no label.
  uint64_t rank(uint32_t entry) const noexcept;
  uint64_t bytes(uint32_t entry) const noexcept { return entries_[entry].bytes; }

  // Puts a bad state out of sight for good. Returns false if it is out of sight already.
  bool remove(const StateLease& lease) noexcept;
  // Evicts up to n states that are not leased, in the policy's order. Returns how many went.
  uint32_t evict(uint32_t n) noexcept;
  // The session is over: what only it used goes before all else of the default
  // priority. O(entries).
  void end_session(SessionId session) noexcept;
  // Forgets the states of this scope; its drafts can no longer be committed. Returns how many went.
  uint32_t drop_scope(const Scope& scope) noexcept;
  // Adds the states deeper than `keep` whose words begin with these to `out`. They are valid until
  // the next change. May throw std::bad_alloc.
  void beyond(const Scope& scope, std::span<const uint32_t> words, uint32_t keep,
              std::vector<uint32_t>& out) const;
  // Forgets what beyond() found.
  void drop(std::span<const uint32_t> entries) noexcept;
  // Forgets everything, drafts as in drop_scope(). Returns how many states went.
  uint32_t clear() noexcept;

  struct Stats {
    uint64_t entries = 0;  // Kept ones.
    uint64_t leased = 0;   // Leased entries, kept or out of sight.
    uint64_t drafts = 0;
    uint64_t bytes = 0;  // All that counts against the budget.
    uint64_t budget_bytes = 0;
    uint64_t held_bytes = 0;   // The part of `bytes` that cannot go now: drafts and leased entries.
    uint64_t positions = 0;    // Sum of the depths of kept entries.
    uint64_t index_bytes = 0;  // Other memory: tree, policy, books.
    uint64_t stores = 0;       // Commits.
    uint64_t replaced = 0;     // Commits that replaced an entry of the same scope and words.
    uint64_t refused_too_large = 0;
    uint64_t evictions = 0;  // To make room, or by evict().
    uint64_t removed = 0;    // By remove().
  };
  Stats stats() const noexcept;

  struct Info {
    Scope scope;
    uint32_t depth = 0;
    uint32_t logits = 0;
    uint64_t bytes = 0;
    uint32_t leases = 0;
    std::vector<uint32_t> words;
  };
  // Everything kept, in no order. Error: out_of_memory.
  Result<std::vector<Info>> list() const;
  // Stops the process with a description when the books do not balance.
  void check_invariants() const;

 private:
  friend class StateLease;
  friend class StateDraft;

  struct Entry {
    StateIndex::Home* home = nullptr;  // Null: out of sight, or a draft whose scope was dropped.
    CellIndex cell = kNoCell;
    uint32_t depth = 0;
    uint32_t logits = 0;
    uint64_t bytes = 0;
    uint64_t generation = 0;
    bool replaces = false;         // A draft whose predecessor had to go early.
    Touch touch;                   // The last one.
    SessionId owner = kNoSession;  // The only session that used it.
    std::vector<uint32_t> words;   // Of a draft.
    std::vector<uint32_t> media;   // One reference each.
    PartLabel label;               // Of a kept one.
  };
  struct Need {
    const Scope& scope;
    uint32_t depth;
    uint32_t logits;
    uint64_t bytes;  // Including the logits.
  };

  StateStore(const Options& options, Lexicon& lexicon);
  StateIndex::Place place(uint32_t entry) const noexcept {
    return {entries_[entry].home, entries_[entry].cell};
  }
  uint64_t now_ns() const noexcept { return clock_.now_ns(); }
  StateCandidate candidate(uint32_t entry, uint32_t common) const noexcept;
  // Refuses what would not fit even if everything evictable went.
  Result<void> check_fits(const Need& need) const;
  bool has_room(const Need& need) const noexcept;
  // Evicts until has_room(). True in `replaced` when `old` went.
  Result<void> make_room(const Need& need, uint32_t old, bool& replaced) noexcept;
  // Takes the room for `need`. Requires has_room().
  Result<StateDraft> draft(const Need& need);
  uint32_t next_victim() noexcept;
  // Puts an entry out of sight; if `replaced`, it has left the index already. Its bytes go now, or
  // with the last lease.
  void put_away(uint32_t entry, bool replaced) noexcept;
  void free_bytes(uint32_t entry) noexcept;
  template <class Match>
  uint32_t forget(const Match& match) noexcept;

  Result<void> commit(uint32_t entry, const Touch& touch, PartLabel&& label) noexcept;
  void abandon(uint32_t entry) noexcept;
  void end_lease(uint32_t entry) noexcept;
  void note_use(uint32_t entry, const Touch& touch) noexcept;

  const Clock& clock_;
  Lexicon& lexicon_;
  StateIndex index_;
  pool::BlockPool slots_;  // An entry's state: draft, cached (kept), dying (out of sight, leased).
  std::unique_ptr<ByteStore> store_;
  std::unique_ptr<RetentionPolicy> policy_;
  std::vector<Entry> entries_;
  uint64_t held_entries_ = 0;
  uint64_t drafts_ = 0;
  Stats stats_;
};

}  // namespace stemma::sequence
