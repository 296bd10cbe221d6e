#include "sequence/inspector.h"

#include <new>

#include "base/check.h"

namespace stemma::sequence {

SequenceStats Inspector::stats() const {
  const EngineTraits& traits = books_.traits;
  SequenceStats out = books_.stats;
  out.sequences = traits.sequences;
  for (const SequenceRecord& record : books_.records) {
    switch (record.state) {
      case SequenceState::free: ++out.free_sequences; break;
      case SequenceState::idle: ++out.idle_sequences; break;
      case SequenceState::leased: ++out.leased_sequences; break;
      case SequenceState::broken: ++out.broken_sequences; break;
    }
  }
  out.pending = pending();
  if (books_.mover != nullptr) out.pinned_bytes = books_.mover->pinned_bytes();
  out.sessions = books_.sessions.size();
  out.context_tokens =
      traits.unified ? traits.context_tokens : uint64_t{traits.context_tokens} * traits.sequences;
  out.used_tokens = books_.room.used();
  out.index_bytes = books_.live.bytes() + books_.lexicon.bytes() + books_.sessions.bytes();
  add_saved(out);
  add_costs(out);
  return out;
}

void Inspector::add_saved(SequenceStats& out) const {
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
}

void Inspector::add_costs(SequenceStats& out) const noexcept {
  const Costs& costs = books_.meter.costs();
  out.compute_token_ns = costs.token_ns;
  out.move_byte_ps = costs.load.byte_ps;
  out.move_call_ns = costs.load.call_ns;
  out.save_byte_ps = costs.save.byte_ps;
  out.save_call_ns = costs.save.call_ns;
  out.attention_cell_ps = costs.cell_ps;
  out.answer_cell_ps = costs.answer_cell_ps;
}

SessionInfo Inspector::session(std::string_view name) const {
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

SequenceInfo Inspector::sequence(SequenceId id) const {
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

Result<std::vector<SequenceContent>> Inspector::contents() const {
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

uint32_t Inspector::pending() const noexcept {
  // Captures that have begun count as one.
  return books_.queue.size() + (capturer_.run() != nullptr || capturer_.left() != 0 ? 1 : 0);
}

void Inspector::check_invariants() const try {
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
  // Some checks are skipped.
}

}  // namespace stemma::sequence
