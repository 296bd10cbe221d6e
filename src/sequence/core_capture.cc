// What is saved, and when.
#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "base/check.h"
#include "key/key_chain.h"
#include "sequence/core.h"

namespace stemma::sequence {

// Saves segments of one sequence, with the engine, without the lock.
class EngineSaver final : public Saver {
 public:
  EngineSaver(Core& core, uint32_t sequence) : core_(core), id_(SequenceId{sequence}) {
    const Text& text = core.text_of(sequence);
    if (core.options_.listener != nullptr) {
      chain_.emplace(core.scope_of(sequence), text.all(), text.spans, core.options_.segment_tokens);
    }
  }
  Result<uint64_t> size(Range range) override {
    const Core::Unlocked unlocked(core_);
    return core_.engine_->size(id_, Part::segment, range);
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    const Core::Unlocked unlocked(core_);
    ++calls;
    Result<uint64_t> written = core_.engine_->save(id_, Part::segment, range, out);
    if (chain_ && written && *written != 0 && *written <= out.size()) {
      label_ = core_.label_of(*chain_, core_.text_of(to_index(id_)), range,
                              core_.retain_of(to_index(id_)).retain.priority);
      core_.tell(to_index(id_), {EntryKind::segment, range, out.first(*written)}, label_.chain);
    }
    return written;
  }
  void prepared(std::span<const BlockId> there) override {
    core_.tell_of_evicted();
    if (!chain_) return;
    for (const BlockId block : there) core_.hand_on(to_index(block), SeenAgain::used);
  }
  PartLabel label(Range /*range*/) override { return std::move(label_); }
  uint64_t calls = 0;

 private:
  Core& core_;
  SequenceId id_;
  std::optional<key::KeyChain> chain_;  // If somebody listens.
  PartLabel label_;                     // Of what was saved last.
};

namespace {

// What became of segments and what belongs at their end: saved if anything was, and nothing failed.
CaptureFate fate_of_both(CaptureFate segments, CaptureFate anchor) noexcept {
  if (segments != CaptureFate::saved && segments != CaptureFate::present) return segments;
  return anchor == CaptureFate::present || anchor == CaptureFate::stale ? segments : anchor;
}

}  // namespace

// ---- The queue ---------------------------------------------------------------------------------

void Core::queue(uint32_t sequence, uint32_t depth) {
  SequenceRecord& record = at(sequence);
  if (record.capture != 0) {
    // A later one of the same sequence has all that the earlier one had.
    ++stats_.captures[static_cast<size_t>(CaptureFate::coalesced)];
    waiting_.unlink(sequence);
  } else if (pending_ >= options_.pending_captures) {
    unqueue(waiting_.front(0), CaptureFate::crowded);
  }
  if (record.capture == 0) ++pending_;
  record.capture = depth;
  waiting_.push_back(0, sequence);
}

void Core::unqueue(uint32_t sequence, CaptureFate fate) {
  SequenceRecord& record = at(sequence);
  STEMMA_CHECK(record.capture != 0);
  waiting_.unlink(sequence);
  record.capture = 0;
  --pending_;
  ++stats_.captures[static_cast<size_t>(fate)];
}

uint32_t Core::unsaved(uint32_t sequence) const noexcept {
  const SequenceRecord& record = records_[sequence];
  return record.capture - std::min(record.capture, record.saved);
}

bool Core::worth_saving(uint32_t sequence) const noexcept {
  const SequenceRecord& record = records_[sequence];
  const Range range{record.capture - unsaved(sequence), record.capture};
  return sequence::worth_saving(meter_.costs(), traits_, options_.segment_tokens, range);
}

bool Core::worth_keeping(uint32_t depth) const noexcept {
  // A guess that it never pays could never be found wrong.
  if (!meter_.moves_measured()) return true;
  return restores_faster(meter_.costs(), traits_, options_.segment_tokens, {0, depth});
}

bool Core::has_room_for(uint32_t sequence) const {
  const auto fits = [](const StateStore& store, uint64_t bytes) {
    const StateStore::Stats stats = store.stats();
    return bytes <= stats.budget_bytes - stats.bytes;
  };
  // What is larger than all of it pushes nothing out.
  if (checkpoints_ != nullptr && traits_.checkpoint_bytes <= checkpoints_->stats().budget_bytes &&
      !fits(*checkpoints_, traits_.checkpoint_bytes)) {
    return false;
  }
  if (segments_ != nullptr) return segments_->free_tokens() >= unsaved(sequence);
  return states_ == nullptr ||
         fits(*states_, traits_.fixed_bytes + traits_.checkpoint_bytes +
                            records_[sequence].capture * traits_.bytes_per_token);
}

Drained Core::drain(const DrainLimits& limits) {
  const base::MutexLock lock(mutex_);
  Drained drained;
  if (gone_) return drained;
  while (mend()) {
  }
  tell_of_evicted();
  uint32_t next = waiting_.front(0);
  while (next != base::IndexLists::kNone && drained.items < limits.items &&
         drained.bytes < limits.bytes) {
    const uint32_t sequence = next;
    next = waiting_.after(sequence);
    if (!limits.evict && !has_room_for(sequence)) continue;
    ++drained.items;
    const Captured captured = capture(sequence);
    drained.bytes += captured.bytes;
    if (captured.fate == CaptureFate::saved) ++drained.saved;
  }
  return drained;
}

// ---- Saving ------------------------------------------------------------------------------------

void Core::count_capture(const Captured& captured) {
  ++stats_.captures[static_cast<size_t>(captured.fate)];
  stats_.captured_bytes += captured.bytes;
}

Captured Core::capture(uint32_t sequence) {
  SequenceRecord& record = at(sequence);
  const uint32_t depth = record.capture;
  // It leaves the queue first: whatever happens, it is not tried again and again.
  waiting_.unlink(sequence);
  record.capture = 0;
  --pending_;
  Captured captured{CaptureFate::stale, 0};
  const Held held = ask(sequence);
  if (held.whole && held.end == room_.length(SequenceId{sequence}) && held.end >= depth &&
      known(sequence) >= depth) {
    const Text& text = text_of(sequence);
    const uint64_t started = clock_->now_ns();
    if (segments_ != nullptr) {
      EngineSaver saver(*this, sequence);
      // Of what is longer than the whole store, the beginning.
      const uint32_t most = text.floor(
          static_cast<uint32_t>(std::min<uint64_t>(depth, segments_->capacity_tokens())));
      captured = segments_->capture(scope_of(sequence), text.prompt(most), record.tenant,
                                    record.retain.get(), saver);
      if (captured.bytes != 0) {
        meter_.saved(saver.calls, captured.bytes, elapsed_ns(started, clock_->now_ns()));
      }
    }
    const bool anchored = (use_checkpoints_ || use_states_) && (!any() || use_states_);
    if (anchored && depth >= 1) {
      // A checkpoint can be had while its position can be resumed, a state while it is the end.
      const bool reachable =
          use_checkpoints_ && traits_.rewind == Rewind::window
              ? can_resume(traits_, held, depth)
              : depth == held.end && can_resume(traits_, resumable_part(sequence), depth);
      const Captured anchor = reachable
                                  ? capture_anchor(sequence, depth, touch_of(record.retain, depth))
                                  : Captured{CaptureFate::stale, 0};
      captured.fate = segments_ == nullptr ? anchor.fate : fate_of_both(captured.fate, anchor.fate);
      captured.bytes += anchor.bytes;
    }
    if (captured.fate == CaptureFate::saved || captured.fate == CaptureFate::present) {
      record.saved = std::max(record.saved, depth);
    }
  }
  count_capture(captured);
  changed();
  return captured;
}

Captured Core::capture_anchor(uint32_t sequence, uint32_t depth, const Touch& touch) {
  const SequenceId id{sequence};
  const Text& text = text_of(sequence);
  const Scope scope = scope_of(sequence);
  // Together with segments, a checkpoint; a state where the full part would not be saved otherwise. An
  // engine with checkpoints and no segments gets both: the one to go back, the other to come back.
  Captured total{CaptureFate::present, 0};
  for (const Part part : {Part::checkpoint, Part::state}) {
    StateStore* store = part == Part::state ? states_.get() : checkpoints_.get();
    if (store == nullptr) continue;
    if (part == Part::state && at(sequence).held.end != depth) continue;
    const StateCandidate there = store->find(scope, text, depth).exact;
    const EntryKind kind = part == Part::state ? EntryKind::state : EntryKind::checkpoint;
    if (there && there.depth == depth) {
      if (Result<StateLease> lease = store->lease(there)) {
        store->used(*lease, touch);
        hand_on(kind, *lease, store->label(*lease), SeenAgain::used);
      }
      continue;
    }
    const Range range{0, depth};
    Result<uint64_t> size = Error(Errc::busy, "");
    {
      const Unlocked unlocked(*this);
      size = engine_->size(id, part, range);
    }
    if (!size || *size == 0) {
      total.fate = CaptureFate::failed;
      continue;
    }
    make_way(*store, kind, scope, depth, *size);
    Result<StateDraft> draft = store->reserve(scope, text, depth, *size);
    if (!draft) {
      total.fate = draft.error().code() == Errc::out_of_range ? CaptureFate::too_large
                                                              : CaptureFate::no_room;
      continue;
    }
    const uint64_t started = clock_->now_ns();
    Result<uint64_t> written = Error(Errc::busy, "");
    bool sealed = false;
    PartLabel label;
    {
      const Unlocked unlocked(*this);
      written = engine_->save(id, part, range, draft->state());
      sealed = written && *written != 0 && *written <= *size && draft->seal(*written).has_value();
      if (sealed && heard()) {
        key::KeyChain chain(scope, text.all(), text.spans, options_.segment_tokens);
        label = label_of(chain, text, range, retain_of(sequence).retain.priority);
      }
    }
    if (!sealed || !draft->commit(*written, touch, std::move(label))) {
      total.fate = CaptureFate::failed;
      continue;
    }
    meter_.saved(1, *written, elapsed_ns(started, clock_->now_ns()));
    if (heard()) {
      tell_of_state(sequence, *store, part, depth);
      if (part == Part::checkpoint && segments_ != nullptr) tell_of_tail(sequence, depth);
    }
    total.fate = CaptureFate::saved;
    total.bytes += *written;
  }
  return total;
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
    const uint64_t started = clock_->now_ns();
    STEMMA_TRY_VOID(
        compute(user, turn.sequence(), prefix.tokens.subspan(begin, end - begin), begin));
    STEMMA_TRY_VOID(turn.computed(end, elapsed_ns(started, clock_->now_ns())));
  }
  const SequenceId sequence = turn.sequence();
  STEMMA_TRY_VOID(turn.finish());
  const base::MutexLock lock(mutex_);
  if (at(to_index(sequence)).capture != 0) report.saved_bytes += capture(to_index(sequence)).bytes;
  return report;
}

}  // namespace stemma::sequence
