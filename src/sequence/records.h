// Records: what a cache writes down about each sequence of the engine and about each turn.
//
// Plain values without behaviour of their own. Books keeps the sequence records; a turn record
// belongs to the Turn that the caller holds.
//
// Threading:  plain values; Books' lock guards them.
// Ownership:  a Text holds references that are counted in the lexicon. Give them back with
//             Lexicon::release() before a record goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sequence/lexicon.h"
#include "sequence/live_index.h"
#include "sequence/planner.h"
#include "sequence/segment_store.h"
#include "sequence/session_table.h"
#include "sequence/state_store.h"
#include "stemma/sequence.h"

namespace stemma::sequence {

struct TurnRecord;

// Whether a mode of reuse includes this part of it.
inline bool allows(Reuse reuse, Reuse part) noexcept {
  return (static_cast<uint8_t>(reuse) & static_cast<uint8_t>(part)) != 0;
}

// How long to keep what a request leaves, as the request said. Owns its ranges.
struct OwnRetain {
  Retain retain;
  std::vector<PriorityRange> ranges;
  void assign(const Retain& from) {
    ranges.assign(from.ranges.begin(), from.ranges.end());
    retain = from;
    retain.ranges = {};
  }
  Retain get() const noexcept {
    Retain out = retain;
    out.ranges = ranges;
    return out;
  }
  // True if the request marked a part of its prompt as worth keeping. Such a part is saved even
  // where computing it again looks cheap.
  bool asks_to_keep() const noexcept {
    const auto above = [](const PriorityRange& range) { return range.priority > kDefaultPriority; };
    return retain.priority > kDefaultPriority || std::ranges::any_of(ranges, above);
  }
};

// One of the engine's sequences.
struct SequenceRecord {
  SequenceState state = SequenceState::free;
  uint64_t generation = 0;
  // It could not be cleared: the engine may hold something unknown in it.
  bool dirty = false;
  // What it holds. While its turn is ready, the turn's own scope and text apply instead. The words
  // [0, LiveIndex::length()) of the text are in the sequence.
  std::optional<Scope> scope;
  Text text;
  Held held;  // The engine's last answer.
  // A recurrent state remembers what a shift discarded, at every position: it cannot be resumed
  // anywhere.
  bool shifted = false;
  TurnRecord* turn = nullptr;
  SessionId session = kNoSession;  // The session whose last turn it holds.
  // [0, capture) waits to be saved, with an anchor at its end; 0: nothing waits.
  uint32_t capture = 0;
  uint32_t saved = 0;  // [0, saved) was saved not long ago.
  bool dear = false;   // A capture was set aside at `saved`: see waits_dear().
  // How much longer prompts took since it became idle, because they were computed beside it.
  uint64_t slowed_ns = 0;
  // Grows with every sequence that begins empty: later ones mostly lie in higher cells.
  uint64_t laid = 0;
  TenantId tenant = kNoTenant;
  OwnRetain retain;

  // How many of the waiting positions were not saved before.
  uint32_t unsaved() const noexcept { return capture - std::min(capture, saved); }
};

enum class TurnPhase : uint8_t { planned, ready, failed };

struct TurnRecord {
  uint32_t sequence = kNoSequence;
  uint64_t generation = 0;
  TurnPhase phase = TurnPhase::planned;
  Scope scope = Scope::from_digest({});
  Text text;
  uint32_t prompt_tokens = 0;
  uint32_t full_limit = 0;  // The most that its units allow to be reused.
  uint32_t limit = 0;       // The most that its units and the caller allow.
  uint32_t terminal = 0;    // Where the next prompt that begins like this one will want to resume.
  SequenceState was = SequenceState::free;  // The state of its sequence before the turn.
  uint32_t available = 0;
  uint32_t computed = 0;
  // The time of computing is not known from this position on; kNoSequence: all times are known.
  uint32_t unmeasured = kNoSequence;
  bool keep = true;
  bool bypass = false;
  bool exclusive = true;
  bool forgotten = false;  // Its scope was dropped: it leaves nothing.
  bool counted = false;    // In the statistics.
  // What follows LiveIndex::length() does not match the words (a shift), or is not indexed.
  bool approximate = false;
  Reuse reuse = Reuse::everything;
  uint64_t freed_below = 0;   // Cells that others gave up since it began to compute.
  uint32_t promised_end = 0;  // It may become this long: others do not get that room.
  uint32_t session = SessionTable::kNone;
  TenantId tenant = kNoTenant;
  OwnRetain retain;
  Plan plan;
  uint64_t epoch = 0;  // Of the books when the plan was made.
  SegmentStore::Hold segments;
  StateLease state;  // The state or checkpoint of the plan.
  StateLease logits;
  std::span<const float> logits_span;
  std::vector<uint32_t> message_ends;
  std::vector<uint32_t> stops;   // Ascending; depths to be kept when they are reached.
  uint32_t interval_tokens = 0;  // While it answers, every so many tokens is a stop; 0 = none.
  uint32_t late_tokens = 0;      // A stop can still be kept this many tokens later.
  std::vector<uint32_t> media_to_process;
  std::vector<uint32_t> item_ends;  // Of the prompt's media items.
  SequenceReport report;
};

// Whether a sequence is in use by a turn whose plan was carried out.
inline bool in_turn(const SequenceRecord& record) noexcept {
  return record.turn != nullptr && record.turn->phase == TurnPhase::ready;
}

// Which saved or live things a plan may not use, because they failed before.
struct Excluded {
  bool forks = false;
  bool segments = false;
  bool states = false;
  bool checkpoints = false;
};

// What could serve a prompt.
struct Found {
  std::vector<LiveIndex::Match> matches;
  std::vector<LiveCandidate> live;
  std::vector<Vacancy> vacant;
  std::vector<uint32_t> checkpoints;               // Depths, ascending.
  std::vector<StateCandidate> checkpoint_entries;  // The checkpoint at each of these depths.
  StateMatch state;
  SavedCandidates saved;
  uint32_t matched = 0;       // Words matched by anything at all.
  uint32_t live_matched = 0;  // Words matched by sequences.
  uint32_t by_mode = 0;       // Words matched by something that the mode of reuse excludes.
  bool scope_known = false;
};

}  // namespace stemma::sequence
