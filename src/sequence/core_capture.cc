// What is saved, and when.
#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "base/check.h"
#include "key/key_chain.h"
#include "sequence/core.h"

namespace stemma::sequence {

namespace {

constexpr uint64_t kNever = ~uint64_t{0};
// A step of a capture: the longest that a request waits for one.
constexpr uint64_t kStepNs = 4'800'000;

}  // namespace

// Saves segments of one sequence, with the engine, without the lock.
class EngineSaver final : public Saver {
 public:
  // `most_tokens` is what may be read at once.
  EngineSaver(Core& core, const CaptureRun& run, uint32_t most_tokens)
      : core_(core), run_(run), id_(SequenceId{run.sequence}), most_tokens_(most_tokens) {
    if (core.books_.heard()) {
      chain_.emplace(run.scope, run.text.all(), run.text.spans, core.books_.options.segment_tokens);
    }
  }
  uint32_t most_tokens() const noexcept override { return most_tokens_; }
  Result<uint64_t> size(Range range) override {
    const Books::Unlocked unlocked(core_.books_);
    return core_.books_.engine->size(id_, Part::segment, range);
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    uint64_t started = 0;
    Result<uint64_t> written = Error(Errc::busy, "");
    {
      const Books::Unlocked unlocked(core_.books_);
      core_.books_.engine->settle();
      started = core_.books_.clock->now_ns();
      written = core_.books_.engine->save(id_, Part::segment, range, out);
    }
    if (written) {
      const uint64_t spent = elapsed_ns(started, core_.books_.clock->now_ns());
      core_.books_.stats.capture_ns += spent;
      core_.books_.meter.saved(1, *written, spent);
    }
    return written;
  }
  void prepared(std::span<const BlockId> there) override {
    core_.tell_of_evicted();
    if (!chain_) return;
    for (const BlockId block : there) core_.hand_on(to_index(block), SeenAgain::used);
  }
  PartLabel saved(Range segment, std::span<const uint8_t> bytes) override {
    if (!chain_) return {};
    const Books::Unlocked unlocked(core_.books_);
    PartLabel label = core_.label_of(*chain_, run_.text, segment, run_.retain.retain.priority);
    core_.books_.options.listener->saved(run_.scope, run_.text.prompt(),
                                         {EntryKind::segment, segment, bytes}, label.chain,
                                         run_.retain.get());
    return label;
  }

 private:
  Core& core_;
  const CaptureRun& run_;
  SequenceId id_;
  uint32_t most_tokens_;
  std::optional<key::KeyChain> chain_;  // If somebody listens.
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
  SequenceRecord& record = books_.at(sequence);
  if (record.capture != 0) {
    // A later one of the same sequence has all that the earlier one had.
    ++books_.stats.captures[static_cast<size_t>(CaptureFate::coalesced)];
    waiting_.unlink(sequence);
  } else if (pending_ >= books_.options.pending_captures) {
    unqueue(waiting_.front(0), CaptureFate::crowded);
  }
  if (record.capture == 0) ++pending_;
  record.capture = depth;
  waiting_.push_back(0, sequence);
}

void Core::unqueue(uint32_t sequence, CaptureFate fate) {
  SequenceRecord& record = books_.at(sequence);
  STEMMA_CHECK(record.capture != 0);
  waiting_.unlink(sequence);
  record.capture = 0;
  --pending_;
  ++books_.stats.captures[static_cast<size_t>(fate)];
}

uint32_t Core::unsaved(uint32_t sequence) const noexcept {
  const SequenceRecord& record = books_.records[sequence];
  return record.capture - std::min(record.capture, record.saved);
}

bool Core::worth_saving(uint32_t sequence) const noexcept {
  const SequenceRecord& record = books_.records[sequence];
  if (record.retain.asks_to_keep()) return unsaved(sequence) != 0;
  const Range range{record.capture - unsaved(sequence), record.capture};
  return sequence::worth_saving(books_.meter.costs(), books_.traits, books_.options.segment_tokens,
                                range);
}

bool Core::worth_keeping(uint32_t depth) const noexcept {
  // A guess that it never pays could never be found wrong.
  if (!books_.meter.moves_measured()) return true;
  return restores_faster(books_.meter.costs(), books_.traits, books_.options.segment_tokens,
                         {0, depth});
}

bool Core::worth_waiting(Range unsaved, uint32_t kept) const noexcept {
  const Range lost{books_.any() ? kept : 0, unsaved.end};
  if (lost.begin >= lost.end) return false;
  const uint64_t saving = cost_of_moving(books_.meter.costs().save, books_.traits,
                                         books_.options.segment_tokens, unsaved, !books_.any());
  return saving < std::max(books_.meter.costs().compute(lost) / 2, kMomentNs) &&
         sequence::worth_saving(books_.meter.costs(), books_.traits, books_.options.segment_tokens,
                                unsaved);
}

uint64_t Core::save_before_cut(uint32_t sequence, uint32_t kept) {
  const uint32_t end = books_.at(sequence).capture;
  const uint32_t fresh = unsaved(sequence);
  const bool marked = books_.at(sequence).retain.asks_to_keep();
  uint64_t bytes = 0;
  if (worth_waiting({end - fresh, end}, kept) || (marked && fresh != 0 && kept < end)) {
    bytes = capture_in_a_step(sequence).bytes;
  }
  const bool under_way = run_ != nullptr && run_->sequence == sequence;
  if (under_way && (marked || worth_waiting({run_->writer.next(), run_->depth}, kept))) {
    read_on(sequence);
  }
  return bytes;
}

bool Core::has_room_for(uint32_t sequence) const {
  const auto fits = [](const StateStore& store, uint64_t bytes) {
    const StateStore::Stats stats = store.stats();
    return bytes <= stats.budget_bytes - stats.bytes;
  };
  // What is larger than all of it pushes nothing out.
  if (books_.checkpoints != nullptr &&
      books_.traits.checkpoint_bytes <= books_.checkpoints->stats().budget_bytes &&
      !fits(*books_.checkpoints, books_.traits.checkpoint_bytes)) {
    return false;
  }
  if (books_.segments != nullptr) return books_.segments->free_tokens() >= unsaved(sequence);
  return books_.states == nullptr ||
         fits(*books_.states, books_.traits.fixed_bytes + books_.traits.checkpoint_bytes +
                                  books_.records[sequence].capture * books_.traits.bytes_per_token);
}

// ---- Bit by bit --------------------------------------------------------------------------------

Drained Core::drain(const DrainLimits& limits) {
  const base::MutexLock lock(books_.mutex);
  Drained drained;
  if (books_.gone) return drained;
  try {
    drain(limits, drained);
  } catch (const std::bad_alloc&) {
    // What is under way goes on with the next call.
  }
  return drained;
}

void Core::drain(const DrainLimits& limits, Drained& drained) {
  while (mend()) {
  }
  tell_of_evicted();
  const uint64_t started = books_.clock->now_ns();
  const uint64_t until = limits.ns > kNever - started ? kNever : started + limits.ns;
  uint32_t passed_over = 0;
  while ((run_ != nullptr || drained.bytes < limits.bytes) && books_.clock->now_ns() < until) {
    if (run_ == nullptr && !start_next(limits, drained, passed_over)) {
      drained.more = drained.items >= limits.items && pending_ != 0;
      return;
    }
    if (run_ == nullptr) continue;  // There was nothing to read.
    const uint64_t before = run_->writer.captured().bytes;
    const bool went_on = go_on(*run_, until);
    drained.bytes += run_->writer.captured().bytes - before;
    if (run_->writer.over()) {
      const Captured captured = end_run(*run_);
      run_.reset();
      if (captured.fate == CaptureFate::saved) ++drained.saved;
      drop_what_was_saved();
    } else if (!went_on) {
      // Threads are at work on what was read.
      drained.waits = until != kNever;
      if (drained.waits) break;
      wait_for(*run_);
    }
  }
  drained.more = run_ != nullptr || pending_ != 0;
}

// Begins with the oldest capture that may begin. False: there is none.
bool Core::start_next(const DrainLimits& limits, Drained& drained, uint32_t& passed_over) {
  if (drained.items >= limits.items) return false;
  uint32_t next = waiting_.front(0);
  for (uint32_t i = 0; i < passed_over && next != base::IndexLists::kNone; ++i) {
    next = waiting_.after(next);
  }
  while (next != base::IndexLists::kNone && !limits.evict && !has_room_for(next)) {
    next = waiting_.after(next);
    ++passed_over;
  }
  if (next == base::IndexLists::kNone) return false;
  ++drained.items;
  run_ = start_run(next);
  if (run_ == nullptr || !run_->writer.over()) return true;
  drained.bytes += run_->anchor.bytes;
  const Captured captured = end_run(*run_);
  run_.reset();
  if (captured.fate == CaptureFate::saved) ++drained.saved;
  return true;
}

std::unique_ptr<CaptureRun> Core::start_run(uint32_t sequence) {
  SequenceRecord& record = books_.at(sequence);
  const uint32_t depth = record.capture;
  // It leaves the queue first: whatever happens, it is not tried again and again.
  waiting_.unlink(sequence);
  record.capture = 0;
  --pending_;
  const Held held = books_.ask(sequence);
  const bool there = held.whole && held.end == books_.room.length(SequenceId{sequence}) &&
                     held.end >= depth && books_.known(sequence) >= depth;
  std::unique_ptr<CaptureRun> run;
  if (there) try {
      run = std::make_unique<CaptureRun>(books_.segments.get(), books_.scope_of(sequence));
      run->sequence = sequence;
      run->depth = depth;
      run->generation = record.generation;
      run->retain.assign(record.retain.get());
      // Of what is longer than the whole store, the beginning.
      const Text& text = books_.text_of(sequence);
      run->segments_to = books_.segments == nullptr
                             ? 0
                             : text.floor(static_cast<uint32_t>(
                                   std::min<uint64_t>(depth, books_.segments->capacity_tokens())));
      if (!books_.lexicon.copy(text, text.floor(depth), run->text)) run.reset();
    } catch (const std::bad_alloc&) {
      run.reset();
    }
  if (run == nullptr) {
    count_capture({there ? CaptureFate::no_room : CaptureFate::stale, 0});
    books_.changed();
    return run;
  }
  // The checkpoint first: it can be had while its position can be resumed, a state while it is the end.
  const bool anchored =
      (books_.use_checkpoints || books_.use_states) && (!books_.any() || books_.use_states);
  if (anchored && depth >= 1) {
    const bool reachable =
        books_.use_checkpoints && books_.traits.rewind == Rewind::window
            ? can_resume(books_.traits, held, depth)
            : depth == held.end &&
                  can_resume(books_.traits, books_.resumable_part(sequence), depth);
    run->anchor = reachable ? capture_anchor(sequence, depth, books_.touch_of(record.retain, depth))
                            : Captured{CaptureFate::stale, 0};
    run->has_anchor = true;
  }
  if (books_.segments != nullptr) {
    EngineSaver saver(*this, *run, 0);
    run->writer.begin(run->scope, run->text.prompt(run->segments_to), record.tenant,
                      record.retain.get(), saver);
  }
  return run;
}

bool Core::go_on(CaptureRun& run, uint64_t until) {
  EngineSaver saver(*this, run, until == kNever ? books_.traits.range_tokens : step_tokens());
  const bool collected = run.writer.collect(saver, until);
  if (run.writer.read(saver)) return true;
  return collected && run.writer.over();
}

void Core::wait_for(CaptureRun& run) {
  CaptureRun* const other = run_.get();
  // It may be that the other capture has the buffers.
  CaptureRun* const busy = run.writer.waits()                          ? &run
                           : other != nullptr && other->writer.waits() ? other
                                                                       : nullptr;
  {
    const Books::Unlocked unlocked(books_);
    if (busy != nullptr) {
      busy->writer.wait();
    } else if (!books_.mover->wait_for_buffer()) {
      run.writer.limit(0);  // There is no memory for one.
    }
  }
  if (busy == nullptr || busy == &run) return;
  EngineSaver saver(*this, *other, 0);
  (void)other->writer.collect(saver, kNever);
}

uint32_t Core::step_tokens() const noexcept {
  const MoveCost& save = books_.meter.costs().save;
  const uint64_t segment = books_.options.segment_tokens;
  uint64_t tokens = 0;
  if (books_.traits.range_tokens != 0) {
    const uint64_t call = save.of(1, books_.traits.fixed_bytes);
    const uint64_t many = std::max<uint64_t>(save.of(0, 1024 * books_.traits.bytes_per_token), 1);
    tokens = std::min<uint64_t>(std::max<uint64_t>(books_.traits.range_tokens, segment),
                                (kStepNs - std::min(kStepNs, call)) * 1024 / many);
  } else {
    const uint64_t bytes = books_.traits.fixed_bytes + segment * books_.traits.bytes_per_token;
    tokens = kStepNs / std::max<uint64_t>(save.of(1, bytes), 1) * segment;
  }
  return static_cast<uint32_t>(std::clamp<uint64_t>(tokens, segment, uint64_t{1} << 30U));
}

Captured Core::end_run(CaptureRun& run) {
  Captured captured = run.writer.captured();
  if (run.has_anchor) {
    captured.fate =
        books_.segments == nullptr ? run.anchor.fate : fate_of_both(captured.fate, run.anchor.fate);
    captured.bytes += run.anchor.bytes;
  }
  SequenceRecord& record = books_.at(run.sequence);
  const bool whole = captured.fate == CaptureFate::present || run.writer.next() >= run.segments_to;
  if ((captured.fate == CaptureFate::saved || captured.fate == CaptureFate::present) && whole &&
      run.depth != 0 && record.generation == run.generation &&
      books_.known(run.sequence) >= run.depth) {
    record.saved = std::max(record.saved, run.depth);
  }
  books_.lexicon.release(run.text);
  count_capture(captured);
  books_.changed();
  return captured;
}

void Core::pause_run() {
  if (run_ == nullptr) return;
  CaptureRun& run = *run_;
  const bool unread = run.writer.reads();
  run.writer.limit(run.writer.next());
  while (!run.writer.over()) {
    EngineSaver saver(*this, run, 0);
    if (!run.writer.collect(saver, kNever)) wait_for(run);
  }
  const SequenceRecord& record = books_.at(run.sequence);
  const bool again = unread && run.depth != 0 && record.generation == run.generation &&
                     record.capture == 0 && books_.known(run.sequence) >= run.depth;
  (void)end_run(run);
  if (again) queue(run.sequence, run.depth);
  run_.reset();
}

void Core::read_on(uint32_t sequence) {
  if (run_ == nullptr || run_->sequence != sequence || !run_->writer.reads()) return;
  const uint64_t started = books_.clock->now_ns();
  EngineSaver saver(*this, *run_, step_tokens());
  while (run_->writer.read(saver) && !part_will_do()) {
  }
  if (run_->writer.over()) {
    (void)end_run(*run_);
    run_.reset();
  }
  books_.stats.waited_ns += elapsed_ns(started, books_.clock->now_ns());
}

void Core::will_lose(uint32_t sequence, uint32_t n) noexcept {
  if (run_ == nullptr || run_->sequence != sequence || n >= run_->depth) return;
  run_->writer.limit(n);
  // What comes there next are other words: none of it is this capture's.
  run_->depth = books_.any() ? n : 0;
}

// ---- At once -----------------------------------------------------------------------------------

void Core::count_capture(const Captured& captured) {
  ++books_.stats.captures[static_cast<size_t>(captured.fate)];
  books_.stats.captured_bytes += captured.bytes;
}

Captured Core::capture(uint32_t sequence) {
  // What was begun bit by bit is finished as it is; a later depth has a capture of its own.
  std::unique_ptr<CaptureRun> run = start_run(sequence);
  if (run == nullptr) return {CaptureFate::stale, 0};
  while (!run->writer.over()) {
    if (!go_on(*run, kNever)) wait_for(*run);
  }
  return end_run(*run);
}

// On a device computing is cheap, and with full attention a part that was saved is of use by itself. Elsewhere the
// request that needs the place waits until all of it is saved.
bool Core::part_will_do() const noexcept {
  return books_.traits.range_tokens != 0 && books_.segments != nullptr && books_.any();
}

Captured Core::capture_in_a_step(uint32_t sequence) {
  SequenceRecord& record = books_.at(sequence);
  const uint32_t most = step_tokens();
  if (part_will_do() && unsaved(sequence) > most) {
    // The beginning: what lies behind it can be computed from there.
    record.capture = books_.text_of(sequence).floor(
        (record.saved + most) / books_.options.segment_tokens * books_.options.segment_tokens);
    if (record.capture <= record.saved) {
      record.capture = std::max(record.capture, 1U);
      unqueue(sequence, CaptureFate::crowded);
      return {CaptureFate::crowded, 0};
    }
  }
  const uint64_t started = books_.clock->now_ns();
  const Captured captured = capture(sequence);
  books_.stats.waited_ns += elapsed_ns(started, books_.clock->now_ns());
  return captured;
}

Captured Core::capture_anchor(uint32_t sequence, uint32_t depth, const Touch& touch) {
  const SequenceId id{sequence};
  const Text& text = books_.text_of(sequence);
  const Scope scope = books_.scope_of(sequence);
  // Together with segments, a checkpoint; a state where the full part would not be saved otherwise. An
  // engine with checkpoints and no segments gets both: the one to go back, the other to come back.
  Captured total{CaptureFate::present, 0};
  for (const Part part : {Part::checkpoint, Part::state}) {
    StateStore* store = part == Part::state ? books_.states.get() : books_.checkpoints.get();
    if (store == nullptr) continue;
    if (part == Part::state && books_.at(sequence).held.end != depth) continue;
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
      const Books::Unlocked unlocked(books_);
      size = books_.engine->size(id, part, range);
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
    uint64_t started = 0;
    Result<uint64_t> written = Error(Errc::busy, "");
    bool sealed = false;
    PartLabel label;
    {
      const Books::Unlocked unlocked(books_);
      books_.engine->settle();
      started = books_.clock->now_ns();
      written = books_.engine->save(id, part, range, draft->state());
      sealed = written && *written != 0 && *written <= *size && draft->seal(*written).has_value();
      if (sealed && books_.heard()) {
        key::KeyChain chain(scope, text.all(), text.spans, books_.options.segment_tokens);
        label = label_of(chain, text, range, books_.retain_of(sequence).retain.priority);
      }
    }
    if (!sealed || !draft->commit(*written, touch, std::move(label))) {
      total.fate = CaptureFate::failed;
      continue;
    }
    const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
    books_.stats.capture_ns += spent;
    books_.meter.saved(1, *written, spent);
    if (books_.heard()) {
      tell_of_state(sequence, *store, part, depth);
      if (part == Part::checkpoint && books_.segments != nullptr) tell_of_tail(sequence, depth);
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
    const uint64_t started = books_.clock->now_ns();
    STEMMA_TRY_VOID(
        compute(user, turn.sequence(), prefix.tokens.subspan(begin, end - begin), begin));
    STEMMA_TRY_VOID(turn.computed(end, elapsed_ns(started, books_.clock->now_ns())));
  }
  const SequenceId sequence = turn.sequence();
  STEMMA_TRY_VOID(turn.finish());
  const base::MutexLock lock(books_.mutex);
  if (books_.at(to_index(sequence)).capture != 0)
    report.saved_bytes += capture(to_index(sequence)).bytes;
  return report;
}

}  // namespace stemma::sequence
