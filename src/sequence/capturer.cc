#include "sequence/capturer.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "key/key_chain.h"
#include "sequence/capture_rules.h"
#include "sequence/state_copy.h"

namespace stemma::sequence {

namespace {

// Saves segments of one sequence, with the engine, without the lock.
class EngineSaver final : public Saver {
 public:
  enum class Pace : uint8_t { at_once, in_steps };
  EngineSaver(Books& books, Notifier& notifier, CaptureRun& run, Pace pace)
      : books_(books), notifier_(notifier), run_(run), id_(SequenceId{run.sequence}), pace_(pace) {
    if (books.heard()) {
      chain_.emplace(run.scope, run.text.all(), run.text.spans, books.options.segment_tokens);
    }
  }
  uint32_t most_tokens() const noexcept override { return books_.traits.range_tokens; }
  uint32_t reach(Range range) override {
    return pace_ == Pace::at_once ? Saver::reach(range) : step_end(books_, run_.sequence, range);
  }
  Result<uint64_t> size(Range range) override {
    const Books::Unlocked unlocked(books_);
    return books_.engine->size(id_, Part::segment, range);
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    uint64_t started = 0;
    uint32_t pieces = 1;
    Result<uint64_t> written = Error(Errc::busy, "");
    {
      const Books::Unlocked unlocked(books_);
      pieces = books_.engine->pieces(id_, range);
      books_.engine->settle();
      started = books_.clock->now_ns();
      written = books_.engine->save(id_, Part::segment, range, out);
    }
    if (written) {
      const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
      books_.stats.capture_ns += spent;
      books_.meter.saved(pieces, *written, spent);
      books_.step_limit.read(*written, spent);
    }
    return written;
  }
  void prepared(std::span<const BlockId> there) override {
    notifier_.tell_of_evicted();
    if (!chain_) return;
    for (const BlockId block : there) notifier_.hand_on_used(to_index(block), run_.use);
  }
  PartLabel saved(Range segment, std::span<const uint8_t> bytes) override {
    if (!chain_) return {};
    const Books::Unlocked unlocked(books_);
    PartLabel label =
        notifier_.label_of(*chain_, run_.text, segment, run_.retain.retain.priority, run_.use);
    books_.options.listener->saved(run_.scope, run_.text.prompt(),
                                   {EntryKind::segment, segment, bytes, label.parent}, label.chain,
                                   run_.retain.get());
    return label;
  }

 private:
  Books& books_;
  Notifier& notifier_;
  CaptureRun& run_;
  SequenceId id_;
  Pace pace_;
  std::optional<key::KeyChain> chain_;  // Only with a listener.
};

// The fate of segments with their anchor: saved if anything was saved and nothing failed.
CaptureFate fate_of_both(CaptureFate segments, CaptureFate anchor) noexcept {
  if (segments != CaptureFate::saved && segments != CaptureFate::present) return segments;
  return anchor == CaptureFate::present || anchor == CaptureFate::stale ? segments : anchor;
}

}  // namespace

// ---- In steps ----------------------------------------------------------------------------------

void Capturer::begin(uint32_t sequence) { run_ = start(sequence); }

bool Capturer::go_on(uint64_t until_ns) { return go_on(*run_, until_ns); }

void Capturer::wait() { wait_for(*run_); }

Captured Capturer::end() {
  const Captured captured = end(*run_);
  run_.reset();
  return captured;
}

void Capturer::stop() noexcept {
  // Threads may still cut what was read; destroying the run waits for them.
  if (run_ != nullptr) books_.lexicon.release(run_->text);
  run_.reset();
  for (const std::unique_ptr<CaptureRun>& run : left_) books_.lexicon.release(run->text);
  left_.clear();
}

std::unique_ptr<CaptureRun> Capturer::make_run(uint32_t sequence, uint32_t depth) try {
  const SequenceRecord& record = books_.at(sequence);
  const SegmentStore* segments = books_.segments.get();
  const Text& text = books_.text_of(sequence);
  auto run = std::make_unique<CaptureRun>(books_.segments.get(), books_.scope_of(sequence));
  run->sequence = sequence;
  run->depth = depth;
  run->generation = record.generation;
  run->retain.assign(record.retain.get());
  // If the text is longer than the whole store, save its beginning.
  run->segments_to = segments == nullptr ? 0
                                         : text.floor(static_cast<uint32_t>(std::min<uint64_t>(
                                               depth, segments->capacity_tokens())));
  if (!books_.lexicon.copy(text, text.floor(depth), run->text)) return nullptr;
  return run;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::unique_ptr<CaptureRun> Capturer::start(uint32_t sequence) {
  const SequenceRecord& record = books_.at(sequence);
  // Take it out of the queue first, so that a failure is not tried again and again.
  const uint32_t depth = books_.queue.take(sequence);
  const Held held = books_.ask(sequence);
  const bool there = held.whole && held.end == books_.room.length(SequenceId{sequence}) &&
                     held.end >= depth && books_.known(sequence) >= depth;
  std::unique_ptr<CaptureRun> run = there ? make_run(sequence, depth) : nullptr;
  if (run == nullptr) {
    count({there ? CaptureFate::no_room : CaptureFate::stale, 0});
    books_.changed();
    return run;
  }
  // The anchor first: a checkpoint can only be read while its position can be resumed, a state only
  // while it is the end.
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
    // After the anchor's moments: the anchor is of no use without the segments.
    run->use = notifier_.moments(run->segments_to / books_.options.segment_tokens + 1);
    EngineSaver saver(books_, notifier_, *run, EngineSaver::Pace::at_once);
    run->writer.begin(run->scope, run->text.prompt(run->segments_to), record.tenant,
                      record.retain.get(), saver);
  }
  return run;
}

bool Capturer::go_on(CaptureRun& run, uint64_t until_ns) {
  EngineSaver saver(
      books_, notifier_, run,
      until_ns == kNoDeadline ? EngineSaver::Pace::at_once : EngineSaver::Pace::in_steps);
  const bool collected = run.writer.collect(saver, until_ns);
  if (run.writer.read(saver)) return true;
  return collected && run.writer.over();
}

void Capturer::wait_for(CaptureRun& run) {
  // Another capture may have the buffers.
  CaptureRun* busy = run.writer.waits() ? &run : nullptr;
  if (busy == nullptr && run_ != nullptr && run_->writer.waits()) busy = run_.get();
  if (busy == nullptr && !left_.empty()) busy = left_.front().get();
  if (busy == nullptr && run_ != nullptr && run_.get() != &run && run_->writer.drop_part()) return;
  {
    const Books::Unlocked unlocked(books_);
    if (busy != nullptr) {
      busy->writer.wait();
    } else if (!books_.mover->wait_for_buffer()) {
      run.writer.limit(0);  // There is no memory for a buffer.
    }
  }
  if (busy == nullptr || busy == &run) return;
  if (busy != run_.get()) {
    (void)collect_left(kNoDeadline);
    return;
  }
  EngineSaver saver(books_, notifier_, *busy, EngineSaver::Pace::at_once);
  (void)busy->writer.collect(saver, kNoDeadline);
}

Captured Capturer::end(CaptureRun& run) {
  Captured captured = run.writer.captured();
  if (run.has_anchor) {
    captured.fate =
        books_.segments == nullptr ? run.anchor.fate : fate_of_both(captured.fate, run.anchor.fate);
    captured.bytes += run.anchor.bytes;
  }
  SequenceRecord& record = books_.at(run.sequence);
  // If the generation differs, the sequence has other words now.
  const bool same = run.depth != 0 && record.generation == run.generation;
  if (same) record.dear = run.set_aside && run.writer.next() <= run.depth;
  if (same && run.set_aside) {
    if (captured.fate == CaptureFate::saved) {
      record.saved = std::max(record.saved, std::min(run.writer.next(), run.depth));
    }
    if (record.capture == 0 && books_.known(run.sequence) >= run.depth)
      books_.queue.add(run.sequence, run.depth);
  }
  const bool whole = captured.fate == CaptureFate::present || run.writer.next() >= run.segments_to;
  if ((captured.fate == CaptureFate::saved || captured.fate == CaptureFate::present) && whole &&
      run.depth != 0 && record.generation == run.generation &&
      books_.known(run.sequence) >= run.depth) {
    record.saved = std::max(record.saved, run.depth);
  }
  books_.lexicon.release(run.text);
  count(captured);
  books_.changed();
  return captured;
}

bool Capturer::next_is_dear() {
  const SegmentWriter& writer = run_->writer;
  if (!writer.reads()) return false;
  return begins_dear(books_, run_->sequence, {writer.next(), run_->segments_to});
}

void Capturer::set_aside() noexcept {
  run_->set_aside = true;
  run_->writer.limit(run_->writer.next());
}

void Capturer::pause() {
  while (!collect_left(kNoDeadline)) wait_for(*left_.front());
  if (run_ == nullptr) return;
  CaptureRun& run = *run_;
  const bool unread = run.writer.reads();
  run.writer.limit(run.writer.next());
  while (!run.writer.over()) {
    EngineSaver saver(books_, notifier_, run, EngineSaver::Pace::at_once);
    if (!run.writer.collect(saver, kNoDeadline)) wait_for(run);
  }
  const SequenceRecord& record = books_.at(run.sequence);
  const bool again = unread && run.depth != 0 && record.generation == run.generation &&
                     record.capture == 0 && books_.known(run.sequence) >= run.depth;
  (void)end(run);
  if (again) books_.queue.add(run.sequence, run.depth);
  run_.reset();
}

void Capturer::read_on(uint32_t sequence) {
  if (!is_reading(sequence)) return;
  // Part of a segment is of no use, so do not wait for one.
  const Range rest{run_->writer.next(), run_->segments_to};
  if (part_will_do(books_) && step_end(books_, sequence, rest) < books_.segment_end(rest)) return;
  const uint64_t started = books_.clock->now_ns();
  EngineSaver saver(books_, notifier_, *run_, EngineSaver::Pace::in_steps);
  while (run_->writer.read(saver) && !part_will_do(books_)) {
  }
  if (run_->writer.over()) {
    (void)end();
  }
  books_.stats.waited_ns += elapsed_ns(started, books_.clock->now_ns());
}

void Capturer::will_lose(uint32_t sequence, uint32_t n) noexcept {
  books_.at(sequence).dear = false;
  // Other words will come behind n: a capture that has begun must not save those.
  const auto lose = [&](CaptureRun& run) {
    if (run.sequence == sequence && n < run.depth) run.depth = books_.any() ? n : 0;
  };
  for (const std::unique_ptr<CaptureRun>& run : left_) lose(*run);
  if (run_ == nullptr || run_->sequence != sequence || n >= run_->depth) return;
  run_->writer.limit(n);
  lose(*run_);
}

bool Capturer::collect_left(uint64_t until_ns) {
  while (!left_.empty()) {
    CaptureRun& run = *left_.front();
    run.writer.limit(run.writer.next());
    EngineSaver saver(books_, notifier_, run, EngineSaver::Pace::at_once);
    (void)run.writer.collect(saver, until_ns);
    if (!run.writer.over()) return false;
    (void)end(run);
    left_.erase(left_.begin());
  }
  return true;
}

// ---- At once -----------------------------------------------------------------------------------

void Capturer::count(const Captured& captured) noexcept {
  ++books_.stats.captures[static_cast<size_t>(captured.fate)];
  books_.stats.captured_bytes += captured.bytes;
}

Captured Capturer::capture(uint32_t sequence) {
  // A capture begun in steps is finished as it is; a later depth gets a capture of its own.
  std::unique_ptr<CaptureRun> run = start(sequence);
  if (run == nullptr) return {CaptureFate::stale, 0};
  while (!run->writer.over()) {
    if (!go_on(*run, kNoDeadline)) wait_for(*run);
  }
  return end(*run);
}

Captured Capturer::capture_in_a_step(uint32_t sequence) {
  SequenceRecord& record = books_.at(sequence);
  const Range waiting{record.capture - record.unsaved(), record.capture};
  const uint32_t end = part_will_do(books_) ? step_end(books_, sequence, waiting) : record.capture;
  if (end < record.capture) {
    // Save the beginning: the rest can be computed from there.
    record.capture = books_.text_of(sequence).floor(end / books_.options.segment_tokens *
                                                    books_.options.segment_tokens);
    if (record.capture <= record.saved) {
      record.capture = std::max(record.capture, 1U);
      books_.queue.remove(sequence, CaptureFate::crowded);
      return {CaptureFate::crowded, 0};
    }
  }
  const uint64_t started = books_.clock->now_ns();
  const Captured captured = part_will_do(books_) ? read_now(sequence) : capture(sequence);
  books_.stats.waited_ns += elapsed_ns(started, books_.clock->now_ns());
  return captured;
}

Captured Capturer::read_now(uint32_t sequence) {
  // Finished runs give their buffers back. This does not wait.
  (void)collect_left(kNoDeadline);
  std::unique_ptr<CaptureRun> started = start(sequence);
  if (started == nullptr) return {CaptureFate::stale, 0};
  CaptureRun& run = *started;
  left_.push_back(std::move(started));
  EngineSaver saver(books_, notifier_, run, EngineSaver::Pace::at_once);
  while (run.writer.read(saver)) {
  }
  // Without a buffer the rest is lost: this does not wait for one.
  run.writer.limit(run.writer.next());
  if (!run.writer.over()) {
    return {CaptureFate::saved, run.writer.captured().bytes + run.writer.cutting_bytes()};
  }
  const Captured captured = end(run);
  left_.pop_back();
  return captured;
}

uint64_t Capturer::save_before_cut(uint32_t sequence, uint32_t kept) {
  const uint32_t end = books_.at(sequence).capture;
  const uint32_t fresh = books_.at(sequence).unsaved();
  const bool marked = books_.at(sequence).retain.asks_to_keep();
  uint64_t bytes = 0;
  if (worth_waiting(books_, {end - fresh, end}, kept) || (marked && fresh != 0 && kept < end)) {
    bytes = capture_in_a_step(sequence).bytes;
  }
  const bool under_way = run_ != nullptr && run_->sequence == sequence;
  if (under_way && (marked || worth_waiting(books_, {run_->writer.next(), run_->depth}, kept))) {
    read_on(sequence);
  }
  return bytes;
}

Captured Capturer::capture_anchor(uint32_t sequence, uint32_t depth, const Touch& touch) {
  // With segments, save a checkpoint; save a state if the full part would not be saved otherwise.
  // An engine with checkpoints but no segments gets both: a checkpoint to go back, a state to come
  // back.
  Captured total{CaptureFate::present, 0};
  for (const Part part : {Part::checkpoint, Part::state}) {
    StateStore* store = part == Part::state ? books_.states.get() : books_.checkpoints.get();
    if (store == nullptr) continue;
    if (part == Part::state && books_.at(sequence).held.end != depth) continue;
    const Captured captured = save_anchor(sequence, part, *store, depth, touch);
    if (captured.fate != CaptureFate::present) total.fate = captured.fate;
    total.bytes += captured.bytes;
  }
  return total;
}

Captured Capturer::save_anchor(uint32_t sequence, Part part, StateStore& store, uint32_t depth,
                               const Touch& touch) {
  const SequenceId id{sequence};
  const Text& text = books_.text_of(sequence);
  const Scope scope = books_.scope_of(sequence);
  const EntryKind kind = part == Part::state ? EntryKind::state : EntryKind::checkpoint;
  const StateCandidate there = store.find(scope, text, depth).exact;
  if (there && there.depth == depth) {
    if (Result<StateLease> lease = store.lease(there)) {
      store.used(*lease, touch);
      notifier_.hand_on_used(store, kind, *lease);
    }
    return {CaptureFate::present, 0};
  }
  const Range range{0, depth};
  Result<uint64_t> size = Error(Errc::busy, "");
  {
    const Books::Unlocked unlocked(books_);
    size = books_.engine->size(id, part, range);
  }
  if (!size || *size == 0) return {CaptureFate::failed, 0};
  notifier_.make_way(store, kind, scope, depth, *size);
  Result<StateDraft> draft = store.reserve(scope, text, depth, *size);
  if (!draft) {
    const bool too_large = draft.error().code() == Errc::out_of_range;
    return {too_large ? CaptureFate::too_large : CaptureFate::no_room, 0};
  }
  uint64_t started = 0;
  Result<uint64_t> written = Error(Errc::busy, "");
  bool sealed = false;
  PartLabel label;
  {
    const Books::Unlocked unlocked(books_);
    books_.engine->settle();
    started = books_.clock->now_ns();
    written = save_state(books_.mover.get(), *books_.engine, id, part, range, draft->state());
    sealed = written && *written != 0 && *written <= *size && draft->seal(*written).has_value();
    if (sealed && books_.heard()) {
      key::KeyChain chain(scope, text.all(), text.spans, books_.options.segment_tokens);
      const Priority priority = books_.retain_of(sequence).retain.priority;
      UseMoments use;
      label = notifier_.label_of(chain, text, range, priority, use);
    }
  }
  if (!sealed || !draft->commit(*written, touch, std::move(label))) return {CaptureFate::failed, 0};
  const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
  books_.stats.capture_ns += spent;
  books_.meter.saved(1, *written, spent);
  if (books_.heard()) {
    notifier_.tell_of_state(sequence, store, part, depth);
    if (part == Part::checkpoint && books_.segments != nullptr) {
      notifier_.tell_of_tail(sequence, depth);
    }
  }
  return {CaptureFate::saved, *written};
}

}  // namespace stemma::sequence
