#include "sequence/core.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace stemma::sequence {

// ---- Creation ----------------------------------------------------------------------------------

Core::Core(SequenceEngine& engine, const SequenceOptions& options)
    : books_(engine, options),
      notifier_(books_),
      capturer_(books_, notifier_),
      finder_(books_),
      planner_(books_, finder_),
      admission_(books_, finder_, planner_),
      clearer_(books_, capturer_),
      restorer_(books_, notifier_, capturer_),
      idle_(books_, finder_, capturer_, clearer_),
      executor_(books_, capturer_, clearer_, planner_, restorer_, idle_),
      drainer_(books_, notifier_, capturer_, clearer_, idle_) {}

Result<Core*> Core::create(SequenceEngine& engine, const SequenceOptions& options) try {
  STEMMA_TRY_VOID(Books::check(options, engine.traits()));
  std::unique_ptr<Core> core(new Core(engine, options));
  STEMMA_TRY_VOID(core->books_.set_up());
  return core.release();
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a sequence cache");
}

void Core::release_owner() noexcept {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void Core::cache_gone() noexcept {
  {
    const base::MutexLock lock(books_.mutex);
    books_.gone = true;
    // The engine may go now, and threads may still ask it to cut what was read.
    capturer_.stop();
  }
  release_owner();
}

// ---- Requests ----------------------------------------------------------------------------------

Result<Turn> Core::begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                         bool whole) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return Error(Errc::stale, "the cache is gone");
  STEMMA_TRY(std::unique_ptr<TurnRecord> record, admission_.begin(scope, prompt, options, whole));
  retain_owner();
  return Turn(this, record.release());
}

Result<SequenceReport> Core::lookup(const Scope& scope, const Prompt& prompt,
                                    const TurnOptions& options) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return Error(Errc::stale, "the cache is gone");
  return admission_.lookup(scope, prompt, options);
}

bool Core::can_admit(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  return !books_.gone && admission_.can_admit(name);
}

Result<uint32_t> Core::execute(TurnRecord& turn) {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(books_.check_turn(turn));
  if (turn.phase != TurnPhase::planned) {
    return Error(Errc::wrong_state, "the plan was carried out already");
  }
  return executor_.execute(turn);
}

// ---- Looking -----------------------------------------------------------------------------------

SequenceStats Core::stats() {
  const base::MutexLock lock(books_.mutex);
  SequenceStats out = books_.stats;
  out.sequences = books_.traits.sequences;
  for (const SequenceRecord& record : books_.records) {
    switch (record.state) {
      case SequenceState::free: ++out.free_sequences; break;
      case SequenceState::idle: ++out.idle_sequences; break;
      case SequenceState::leased: ++out.leased_sequences; break;
      case SequenceState::broken: ++out.broken_sequences; break;
    }
    if (record.capture != 0) ++out.pending;
  }
  if (capturer_.run() != nullptr) ++out.pending;
  if (books_.mover != nullptr) out.pinned_bytes = books_.mover->pinned_bytes();
  out.sessions = books_.sessions.size();
  out.context_tokens = books_.traits.unified
                           ? books_.traits.context_tokens
                           : uint64_t{books_.traits.context_tokens} * books_.traits.sequences;
  out.used_tokens = books_.room.used();
  out.index_bytes = books_.live.bytes() + books_.lexicon.bytes() + books_.sessions.bytes();
  if (books_.segments != nullptr) {
    const Stats saved = books_.segments->stats();
    out.segment_bytes = saved.kv_bytes_used;
    out.saved_bytes += saved.kv_bytes_used;
    out.index_bytes += saved.index_bytes;
    out.segment_evictions = saved.evicted_blocks;
  }
  const auto add = [&](const StateStore* store, uint64_t& bytes) {
    if (store == nullptr) return;
    const StateStore::Stats saved = store->stats();
    bytes = saved.bytes;
    out.saved_bytes += saved.bytes;
    out.index_bytes += saved.index_bytes;
    out.state_evictions += saved.evictions;
  };
  add(books_.states.get(), out.state_bytes);
  add(books_.checkpoints.get(), out.checkpoint_bytes);
  if (books_.logits != nullptr) out.logits_bytes = books_.logits->stats().bytes;
  const Costs& costs = books_.meter.costs();
  out.compute_token_ns = costs.token_ns;
  out.move_byte_ps = costs.load.byte_ps;
  out.move_call_ns = costs.load.call_ns;
  out.save_byte_ps = costs.save.byte_ps;
  out.save_call_ns = costs.save.call_ns;
  out.attention_cell_ps = costs.cell_ps;
  out.answer_cell_ps = costs.answer_cell_ps;
  return out;
}

SessionInfo Core::session(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  SessionInfo out;
  const uint32_t session = books_.sessions.find(name);
  if (session == SessionTable::kNone) return out;
  const Session& it = books_.sessions[session];
  const SequenceRecord& record = books_.records[to_index(it.sequence)];
  out.known = true;
  out.in_flight = it.in_flight != 0;
  out.resident = record.session == it.id && record.generation == it.generation &&
                 record.state == SequenceState::idle;
  out.sequence = it.sequence;
  out.turns = it.turns;
  out.length = it.length;
  out.last_used_ns = it.last_used_ns;
  return out;
}

SequenceInfo Core::sequence(SequenceId id) {
  const base::MutexLock lock(books_.mutex);
  SequenceInfo out;
  if (to_index(id) >= books_.records.size()) return out;
  const SequenceRecord& record = books_.records[to_index(id)];
  out.state = record.state;
  out.generation = record.generation;
  out.length = books_.live.length(id);
  out.unsaved_tokens = books_.at(to_index(id)).unsaved();
  out.approximate = books_.room.length(id) > out.length;
  return out;
}

Result<std::vector<SequenceContent>> Core::contents() {
  const base::MutexLock lock(books_.mutex);
  std::vector<SequenceContent> out;
  try {
    for (uint32_t s = 0; s < books_.records.size(); ++s) {
      if (books_.known(s) == 0) continue;
      out.push_back({SequenceContent::Kind::live, books_.scope_of(s), books_.known(s), 0,
                     SequenceId{s}, books_.at(s).state == SequenceState::leased});
    }
    if (books_.segments != nullptr) {
      const Result<std::vector<CachedPath>> paths = books_.segments->contents();
      if (!paths) throw std::bad_alloc();
      for (const CachedPath& path : *paths) {
        out.push_back({SequenceContent::Kind::segment_path, path.scope, path.tokens,
                       uint64_t{path.tokens} * books_.traits.bytes_per_token, SequenceId{},
                       path.held});
      }
    }
    const auto add = [&](StateStore* store, SequenceContent::Kind kind) {
      if (store == nullptr) return;
      const Result<std::vector<StateStore::Info>> entries = store->list();
      if (!entries) throw std::bad_alloc();
      for (const StateStore::Info& entry : *entries) {
        out.push_back(
            {kind, entry.scope, entry.depth, entry.bytes, SequenceId{}, entry.leases != 0});
      }
    };
    add(books_.states.get(), SequenceContent::Kind::state);
    add(books_.checkpoints.get(), SequenceContent::Kind::checkpoint);
    add(books_.logits.get(), SequenceContent::Kind::logits);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to list what there is");
  }
  return out;
}

uint32_t Core::pending() {
  const base::MutexLock lock(books_.mutex);
  uint32_t count = 0;
  for (const SequenceRecord& record : books_.records) count += record.capture != 0 ? 1 : 0;
  return count + (capturer_.run() != nullptr ? 1 : 0);
}

void Core::check_invariants() try {
  const base::MutexLock lock(books_.mutex);
  books_.live.check_invariants();
  books_.room.check_invariants();
  books_.sessions.check_invariants();
  if (books_.segments != nullptr) books_.segments->check_invariants();
  for (const StateStore* store :
       {books_.states.get(), books_.checkpoints.get(), books_.logits.get()}) {
    if (store != nullptr) store->check_invariants();
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    const SequenceRecord& record = books_.records[s];
    const SequenceId id{s};
    STEMMA_CHECK((record.state == SequenceState::leased) == (record.turn != nullptr));
    STEMMA_CHECK((record.state == SequenceState::idle) == books_.idle_order.linked(s));
    STEMMA_CHECK((record.capture != 0) == books_.queue.waits(s));
    if (record.state == SequenceState::free) {
      STEMMA_CHECK(books_.live.length(id) == 0 && books_.room.length(id) == 0 &&
                   record.text.tokens.empty());
    }
    if (record.state == SequenceState::idle) {
      STEMMA_CHECK(record.scope.has_value() && books_.live.length(id) <= record.text.length());
      STEMMA_CHECK(books_.live.length(id) <= books_.room.length(id));
    }
    STEMMA_CHECK(record.capture <= books_.live.length(id));
    if (record.turn == nullptr) continue;
    STEMMA_CHECK(record.turn->sequence == s);
  }
} catch (const std::bad_alloc&) {
  // Looked at less.
}

HandedOn Core::hand_on(uint64_t from, uint64_t bytes) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? HandedOn() : notifier_.hand_on_all(from, bytes);
}

Drained Core::drain(const DrainLimits& limits) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? Drained() : drainer_.drain(limits);
}

// ---- Warming up --------------------------------------------------------------------------------

Result<SequenceReport> Core::warm(const Scope& scope, const Prompt& prefix,
                                  SequenceCache::Compute compute, void* user,
                                  const TurnOptions& options) {
  if (compute == nullptr) return Error(Errc::invalid_argument, "no function that computes");
  TurnOptions whole = options;
  whole.keep = true;
  STEMMA_TRY(Turn turn, begin(scope, prefix, whole, true));
  STEMMA_TRY_VOID(turn.execute());
  SequenceReport report = turn.report();
  while (turn.computed() < turn.length()) {
    const uint32_t begin = turn.computed();
    const uint32_t end = turn.next_stop();
    const uint64_t started = books_.clock->now_ns();
    STEMMA_TRY_VOID(
        compute(user, turn.sequence(), prefix.tokens.subspan(begin, end - begin), begin));
    STEMMA_TRY_VOID(turn.computed(end, elapsed_ns(started, books_.clock->now_ns())));
  }
  const SequenceId sequence = turn.sequence();
  STEMMA_TRY_VOID(turn.finish());
  const base::MutexLock lock(books_.mutex);
  if (books_.at(to_index(sequence)).capture != 0)
    report.saved_bytes += capturer_.capture(to_index(sequence)).bytes;
  return report;
}

}  // namespace stemma::sequence
