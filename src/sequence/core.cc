#include "sequence/core.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "retain/policies.h"
#include "stemma/log.h"

namespace stemma::sequence {
namespace {

Error bad(const char* what) { return {Errc::invalid_argument, what}; }

Result<void> check_options(const SequenceOptions& options) {
  const uint32_t tokens = options.segment_tokens;
  if (tokens == 0 || tokens > 1024 || (tokens & (tokens - 1)) != 0) {
    return Error(Errc::invalid_argument, "segment_tokens is no power of two from 1 to 1024",
                 tokens);
  }
  const double share = options.checkpoint_share;
  const bool is_share = share >= 0 && share <= 1;  // What is no number is none.
  if (!is_share) return bad("checkpoint_share is not between 0 and 1");
  if (static_cast<uint8_t>(options.reuse) > 3) return bad("reuse is no mode");
  if (options.sessions == 0) return bad("sessions is 0");
  if (options.pending_captures == 0) return bad("pending_captures is 0");
  if (!knows_policy(options.policy)) return bad("no policy has this name");
  return {};
}

Result<void> check_traits(const EngineTraits& traits) {
  if (traits.sequences == 0) return bad("the engine has no sequences");
  if (traits.context_tokens == 0) return bad("the engine has a context of 0 tokens");
  if (traits.rewind == Rewind::window && traits.rewind_tokens == 0) {
    return bad("the engine has a window of 0 tokens");
  }
  if (traits.rewind == Rewind::bounded && traits.rewind_tokens == 0) {
    return bad("the engine goes back by at most 0 tokens: that is Rewind::exact");
  }
  if (traits.rewind == Rewind::any && traits.checkpoints) {
    return bad("an engine that goes back anywhere has no checkpoints");
  }
  if (traits.fork == Fork::none && (traits.segments || traits.checkpoints)) {
    return bad("an engine that saves nothing (Fork::none) has no segments and no checkpoints");
  }
  if (traits.rewind == Rewind::any && traits.segments && traits.bytes_per_token == 0 &&
      traits.fixed_bytes == 0) {
    return bad("the engine has segments, and bytes_per_token is 0");
  }
  return {};
}

// What things cost as far as the options say.
Costs believed(const SequenceOptions& options) {
  const MoveCost move{options.move_call_ns, options.move_byte_ps};
  return {.token_ns = options.compute_token_ns,
          .cell_ps = options.attention_cell_ps,
          .answer_cell_ps = options.attention_cell_ps,
          .save = move,
          .load = move};
}

}  // namespace

// ---- Creation ----------------------------------------------------------------------------------

Core::Core(SequenceEngine& engine, const SequenceOptions& options)
    : engine_(&engine),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &Clock::monotonic()),
      traits_(engine.traits()),
      meter_(believed(options)) {}

Result<Core*> Core::create(SequenceEngine& engine, const SequenceOptions& options) try {
  STEMMA_TRY_VOID(check_options(options));
  STEMMA_TRY_VOID(check_traits(engine.traits()));
  std::unique_ptr<Core> core(new Core(engine, options));
  STEMMA_TRY_VOID(core->set_up());
  return core.release();
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a sequence cache");
}

Result<void> Core::set_up() {
  const Error no_memory(Errc::out_of_memory, "no memory for a sequence cache");
  const uint64_t positions = traits_.unified ? traits_.context_tokens
                                             : uint64_t{traits_.context_tokens} * traits_.sequences;
  // Twice what there can be: who adds words that another has is asked for as much as if he had not.
  if (!live_.create(traits_.sequences, 2 * std::max<uint64_t>(positions, 16)) ||
      !lists_.create(traits_.sequences, 1) || !waiting_.create(traits_.sequences, 1) ||
      !lists_.ensure(traits_.sequences - 1) || !waiting_.ensure(traits_.sequences - 1) ||
      !sessions_.create(options_.sessions)) {
    return no_memory;
  }
  records_.resize(traits_.sequences);
  flags_.resize(traits_.sequences);
  nobody_.resize(traits_.sequences);
  room_.create(traits_);

  const bool saves =
      has(options_.reuse, Reuse::saved) && options_.saved_bytes != 0 && traits_.fork != Fork::none;
  uint64_t budget = options_.saved_bytes;
  // Without attention to the whole past a state is a checkpoint, and the other way round.
  if (saves && traits_.checkpoints && !any() && traits_.bytes_per_token != 0) {
    // A product that was rounded may be more than all of it.
    const double part = static_cast<double>(budget) * options_.checkpoint_share;
    const uint64_t share =
        part >= static_cast<double>(budget) ? budget : static_cast<uint64_t>(part);
    STEMMA_TRY(checkpoints_, make_store(share, traits_.checkpoint_bytes));
    use_checkpoints_ = true;
    budget -= share;
  }
  if (saves && traits_.segments && (any() || use_checkpoints_)) {
    budget -= make_mover(budget);
    SegmentStore::Settings settings;
    settings.engine = engine_;
    settings.mover = mover_.get();
    settings.budget_bytes = budget;
    settings.segment_tokens = options_.segment_tokens;
    settings.segment_bytes =
        traits_.fixed_bytes + uint64_t{options_.segment_tokens} * traits_.bytes_per_token;
    if (heard()) {
      const bool words = options_.listener->keeps_words();
      settings.label_bytes =
          sizeof(PartLabel) + (words ? uint64_t{options_.segment_tokens} * sizeof(uint32_t) : 0);
    }
    settings.quotas = options_.quotas;
    settings.policy = options_.policy;
    settings.clock = clock_;
    STEMMA_TRY(segments_, SegmentStore::create(settings));
  } else if (saves) {
    const uint64_t tokens = options_.segment_tokens;
    STEMMA_TRY(states_, make_store(budget, traits_.fixed_bytes + traits_.checkpoint_bytes +
                                               tokens * traits_.bytes_per_token));
    use_states_ = true;
  }
  if (options_.logits_bytes != 0) {
    constexpr uint64_t kSmallVocabulary = 1024 * sizeof(float);
    STEMMA_TRY(logits_, make_store(options_.logits_bytes, kSmallVocabulary));
  }
  return {};
}

uint64_t Core::make_mover(uint64_t budget) {
  if (traits_.range_tokens == 0) return 0;
  constexpr uint64_t kMost = uint64_t{2} << 30U;
  RangeMover::Options settings;
  settings.hook = options_.pinned;
  settings.threads = options_.range_threads;
  const uint64_t fixed = traits_.fixed_bytes + traits_.checkpoint_bytes;
  const uint64_t least = fixed + options_.segment_tokens * traits_.bytes_per_token;
  const uint64_t range = fixed + uint64_t{std::max(traits_.range_tokens, options_.segment_tokens)} *
                                     traits_.bytes_per_token;
  // No more than an eighth of all that may be saved is on its way.
  constexpr uint64_t kPage = 4096;
  const uint64_t most = std::min(budget / 8, kMost) / settings.buffers / kPage * kPage;
  settings.buffer_bytes = std::min(range, most);
  if (settings.buffer_bytes < least) return 0;
  mover_ = RangeMover::create(settings);
  return mover_ == nullptr ? 0 : mover_->buffer_bytes() * settings.buffers;
}

CaptureRun::CaptureRun(Core& core, const Scope& of) : scope(of), writer(core.segments_.get()) {}

Result<std::unique_ptr<StateStore>> Core::make_store(uint64_t budget, uint64_t entry_bytes) {
  StateStore::Options settings;
  settings.budget_bytes = budget;
  const uint64_t entries = budget / std::max<uint64_t>(entry_bytes, 1) + 1;
  settings.max_entries = static_cast<uint32_t>(std::clamp<uint64_t>(entries, 16, 1U << 17U));
  settings.max_positions =
      std::clamp<uint64_t>(uint64_t{settings.max_entries} * 1024, traits_.context_tokens * 4ULL,
                           std::max<uint64_t>(1U << 26U, traits_.context_tokens * 4ULL));
  // Nobody tells a policy of contents here. One that learns from them goes as lru then, and takes a megabyte.
  const bool learns = retain::most_bytes(options_.policy).fixed != 0;
  settings.policy = learns ? std::string_view("lru") : options_.policy;
  settings.clock = clock_;
  return StateStore::create(settings, lexicon_);
}

void Core::release_owner() noexcept {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void Core::cache_gone() noexcept {
  {
    const base::MutexLock lock(mutex_);
    gone_ = true;
    // The engine may go now, and threads may still ask it to cut what was read.
    if (run_ != nullptr) lexicon_.release(run_->text);
    run_.reset();
  }
  release_owner();
}

// ---- Sequences ---------------------------------------------------------------------------------

Held Core::ask(uint32_t sequence) {
  Held held;
  {
    const Unlocked unlocked(*this);
    held = engine_->held(SequenceId{sequence});
  }
  at(sequence).held = held;
  return held;
}

Held Core::resumable_part(uint32_t sequence) const noexcept {
  Held held = records_[sequence].held;
  const bool recurrent = traits_.rewind == Rewind::exact || traits_.rewind == Rewind::bounded;
  if (records_[sequence].shifted && recurrent) held.begin = held.end;
  return held;
}

void Core::set_state(uint32_t sequence, SequenceState state) noexcept {
  SequenceRecord& record = at(sequence);
  if (lists_.linked(sequence)) lists_.unlink(sequence);
  record.state = state;
  if (state == SequenceState::idle) lists_.push_back(0, sequence);
  changed();
}

void Core::forget(uint32_t sequence) noexcept {
  SequenceRecord& record = at(sequence);
  const SequenceId id{sequence};
  if (room_.length(id) != 0 || live_.length(id) != 0 || record.dirty) ++record.generation;
  if (record.capture != 0) unqueue(sequence, CaptureFate::stale);
  will_lose(sequence, 0);
  live_.clear(id);
  lexicon_.release(record.text);
  record.scope.reset();
  record.session = kNoSession;
  record.held = {};
  record.shifted = false;
  record.saved = 0;
  changed();
}

bool Core::empty(uint32_t sequence) {
  forget(sequence);
  SequenceRecord& record = at(sequence);
  record.dirty = false;
  for (uint32_t tries = 0; tries < 2; ++tries) {
    {
      const Unlocked unlocked(*this);
      // Whether it worked is seen below.
      (void)engine_->clear(SequenceId{sequence});
    }
    if (ask(sequence) == Held{}) {
      room_.set_length(SequenceId{sequence}, 0);
      return true;
    }
  }
  record.dirty = true;
  ++stats_.broken;
  return false;
}

bool Core::retire(uint32_t sequence, SequenceReport* report) {
  SequenceRecord& record = at(sequence);
  if (record.capture != 0 && worth_saving(sequence)) {
    const Captured captured = capture_in_a_step(sequence);
    if (captured.bytes != 0) ++stats_.victims_saved;
    if (report != nullptr) report->saved_bytes += captured.bytes;
  }
  read_on(sequence);
  ++stats_.victims;
  if (report != nullptr) ++report->victims;
  const bool done = empty(sequence);
  if (record.state == SequenceState::idle) {
    set_state(sequence, done ? SequenceState::free : SequenceState::broken);
  }
  return done;
}

Result<void> Core::check(const TurnRecord& turn) {
  if (gone_) return Error(Errc::stale, "the cache is gone");
  if (turn.sequence != kNoSequence) return {};
  ++stats_.stale_calls;
  return Error(Errc::stale, "the context was made anew: this turn has no sequence any more");
}

void Core::index_up_to(TurnRecord& turn, uint32_t n) noexcept {
  const uint32_t known_now = known(turn.sequence);
  // What a bypassed turn computes is not what its words say.
  if (turn.approximate || turn.forgotten || turn.bypass || known_now >= n) return;
  const auto words = turn.text.all().subspan(known_now, n - known_now);
  Result<void> added = Error(Errc::out_of_memory, "");
  try {
    added = live_.append(SequenceId{turn.sequence}, turn.scope, words);
  } catch (const std::bad_alloc&) {
    // As when it says so itself.
  }
  // What is not indexed is not found; that is all.
  if (!added) turn.approximate = true;
}

// ---- Looking -----------------------------------------------------------------------------------

SequenceStats Core::stats() {
  const base::MutexLock lock(mutex_);
  SequenceStats out = stats_;
  out.sequences = traits_.sequences;
  for (const SequenceRecord& record : records_) {
    switch (record.state) {
      case SequenceState::free: ++out.free_sequences; break;
      case SequenceState::idle: ++out.idle_sequences; break;
      case SequenceState::leased: ++out.leased_sequences; break;
      case SequenceState::broken: ++out.broken_sequences; break;
    }
    if (record.capture != 0) ++out.pending;
  }
  if (run_ != nullptr) ++out.pending;
  if (mover_ != nullptr) out.pinned_bytes = mover_->pinned_bytes();
  out.sessions = sessions_.size();
  out.context_tokens = traits_.unified ? traits_.context_tokens
                                       : uint64_t{traits_.context_tokens} * traits_.sequences;
  out.used_tokens = room_.used();
  out.index_bytes = live_.bytes() + lexicon_.bytes() + sessions_.bytes();
  if (segments_ != nullptr) {
    const Stats saved = segments_->stats();
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
  add(states_.get(), out.state_bytes);
  add(checkpoints_.get(), out.checkpoint_bytes);
  if (logits_ != nullptr) out.logits_bytes = logits_->stats().bytes;
  const Costs& costs = meter_.costs();
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
  const base::MutexLock lock(mutex_);
  SessionInfo out;
  const uint32_t session = sessions_.find(name);
  if (session == SessionTable::kNone) return out;
  const Session& it = sessions_[session];
  const SequenceRecord& record = records_[to_index(it.sequence)];
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
  const base::MutexLock lock(mutex_);
  SequenceInfo out;
  if (to_index(id) >= records_.size()) return out;
  const SequenceRecord& record = records_[to_index(id)];
  out.state = record.state;
  out.generation = record.generation;
  out.length = live_.length(id);
  out.unsaved_tokens = unsaved(to_index(id));
  out.approximate = room_.length(id) > out.length;
  return out;
}

Result<std::vector<SequenceContent>> Core::contents() {
  const base::MutexLock lock(mutex_);
  std::vector<SequenceContent> out;
  try {
    for (uint32_t s = 0; s < records_.size(); ++s) {
      if (known(s) == 0) continue;
      out.push_back({SequenceContent::Kind::live, scope_of(s), known(s), 0, SequenceId{s},
                     at(s).state == SequenceState::leased});
    }
    if (segments_ != nullptr) {
      const Result<std::vector<CachedPath>> paths = segments_->contents();
      if (!paths) throw std::bad_alloc();
      for (const CachedPath& path : *paths) {
        out.push_back({SequenceContent::Kind::segment_path, path.scope, path.tokens,
                       uint64_t{path.tokens} * traits_.bytes_per_token, SequenceId{}, path.held});
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
    add(states_.get(), SequenceContent::Kind::state);
    add(checkpoints_.get(), SequenceContent::Kind::checkpoint);
    add(logits_.get(), SequenceContent::Kind::logits);
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to list what there is");
  }
  return out;
}

uint32_t Core::pending() {
  const base::MutexLock lock(mutex_);
  uint32_t count = 0;
  for (const SequenceRecord& record : records_) count += record.capture != 0 ? 1 : 0;
  return count + (run_ != nullptr ? 1 : 0);
}

void Core::check_invariants() try {
  const base::MutexLock lock(mutex_);
  live_.check_invariants();
  room_.check_invariants();
  sessions_.check_invariants();
  if (segments_ != nullptr) segments_->check_invariants();
  for (const StateStore* store : {states_.get(), checkpoints_.get(), logits_.get()}) {
    if (store != nullptr) store->check_invariants();
  }
  for (uint32_t s = 0; s < records_.size(); ++s) {
    const SequenceRecord& record = records_[s];
    const SequenceId id{s};
    STEMMA_CHECK((record.state == SequenceState::leased) == (record.turn != nullptr));
    STEMMA_CHECK((record.state == SequenceState::idle) == lists_.linked(s));
    STEMMA_CHECK((record.capture != 0) == waiting_.linked(s));
    if (record.state == SequenceState::free) {
      STEMMA_CHECK(live_.length(id) == 0 && room_.length(id) == 0 && record.text.tokens.empty());
    }
    if (record.state == SequenceState::idle) {
      STEMMA_CHECK(record.scope.has_value() && live_.length(id) <= record.text.length());
      STEMMA_CHECK(live_.length(id) <= room_.length(id));
    }
    STEMMA_CHECK(record.capture <= live_.length(id));
    if (record.turn == nullptr) continue;
    STEMMA_CHECK(record.turn->sequence == s);
  }
} catch (const std::bad_alloc&) {
  // Looked at less.
}

}  // namespace stemma::sequence
