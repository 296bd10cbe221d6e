#include "sequence/core.h"

#include <memory>
#include <new>

namespace stemma::sequence {

namespace {

constexpr Error kGone(Errc::stale, "the cache is gone");

}  // namespace

// ---- Owners ------------------------------------------------------------------------------------

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
    // The engine may be destroyed after this, and threads may still ask it to cut what was read.
    capturer_.stop();
  }
  release_owner();
}

void Core::destroy(TurnRecord* turn) noexcept {
  delete turn;
  release_owner();
}

// ---- SequenceCache -----------------------------------------------------------------------------

Result<Turn> Core::begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                         bool whole) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return kGone;
  STEMMA_TRY(std::unique_ptr<TurnRecord> record, admission_.begin(scope, prompt, options, whole));
  owners_.fetch_add(1, std::memory_order_relaxed);
  return Turn(this, record.release());
}

Result<SequenceReport> Core::lookup(const Scope& scope, const Prompt& prompt,
                                    const TurnOptions& options) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return kGone;
  return admission_.lookup(scope, prompt, options);
}

bool Core::can_admit(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  return !books_.gone && admission_.can_admit(name);
}

Drained Core::drain(const DrainLimits& limits) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? Drained() : drainer_.drain(limits);
}

uint32_t Core::pending() {
  const base::MutexLock lock(books_.mutex);
  return inspector_.pending();
}

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
  const uint32_t sequence = to_index(turn.sequence());
  STEMMA_TRY_VOID(turn.finish());
  const base::MutexLock lock(books_.mutex);
  if (books_.queue.waits(sequence)) report.saved_bytes += capturer_.capture(sequence).bytes;
  return report;
}

Result<Admitted> Core::admit(const Scope& scope, const Prompt& prompt,
                             std::span<const SavedPart> parts, const TurnOptions& options) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return Admitted();
  return intake_.admit(scope, prompt, parts, options);
}

HandedOn Core::hand_on(uint64_t from, uint64_t bytes) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? HandedOn() : notifier_.hand_on_all(from, bytes);
}

uint64_t Core::hand_on_from(uint64_t bytes) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? 0 : notifier_.hand_on_from(bytes);
}

// Needs no lock: the segments are a PagedCache, which has its own.
uint32_t Core::saved_tokens(const Scope& scope, const Prompt& prompt) const STEMMA_NO_ANALYSIS {
  return intake_.saved_tokens(scope, prompt);
}

uint32_t Core::saved_checkpoints(const Scope& scope, const Prompt& prompt,
                                 std::span<uint32_t> out) {
  const base::MutexLock lock(books_.mutex);
  return books_.gone ? 0 : intake_.saved_checkpoints(scope, prompt, out);
}

void Core::forget_context() {
  const base::MutexLock lock(books_.mutex);
  if (!books_.gone) forgetter_.forget_context();
}

void Core::drop_scope(const Scope& scope) {
  const base::MutexLock lock(books_.mutex);
  if (!books_.gone) forgetter_.drop_scope(scope);
}

void Core::drop_saved() {
  const base::MutexLock lock(books_.mutex);
  if (!books_.gone) forgetter_.drop_saved();
}

Result<Truncated> Core::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return kGone;
  return forgetter_.truncate(scope, prompt, keep);
}

void Core::end_session(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  if (!books_.gone) sessions_.end_session(name);
}

SequenceStats Core::stats() {
  const base::MutexLock lock(books_.mutex);
  return inspector_.stats();
}

SessionInfo Core::session(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  return inspector_.session(name);
}

SequenceInfo Core::sequence(SequenceId id) {
  const base::MutexLock lock(books_.mutex);
  return inspector_.sequence(id);
}

Result<std::vector<SequenceContent>> Core::contents() {
  const base::MutexLock lock(books_.mutex);
  return inspector_.contents();
}

void Core::check_invariants() {
  const base::MutexLock lock(books_.mutex);
  inspector_.check_invariants();
}

// ---- Turn --------------------------------------------------------------------------------------

Result<uint32_t> Core::execute(TurnRecord& turn) {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(books_.check_turn(turn));
  if (turn.phase != TurnPhase::planned) {
    return Error(Errc::wrong_state, "the plan was carried out already");
  }
  return executor_.execute(turn);
}

Result<void> Core::computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns) {
  const base::MutexLock lock(books_.mutex);
  return progress_.computed(turn, n, spent_ns);
}

Result<void> Core::extend(TurnRecord& turn, std::span<const Token> tokens) {
  const base::MutexLock lock(books_.mutex);
  return progress_.extend(turn, tokens);
}

Result<void> Core::reserve(TurnRecord& turn, uint32_t tokens) {
  const base::MutexLock lock(books_.mutex);
  return progress_.reserve(turn, tokens);
}

Result<void> Core::rewind(TurnRecord& turn, uint32_t n) {
  const base::MutexLock lock(books_.mutex);
  return progress_.rewind(turn, n);
}

Result<void> Core::attach_logits(TurnRecord& turn, uint32_t depth, std::span<const float> logits) {
  const base::MutexLock lock(books_.mutex);
  return progress_.attach_logits(turn, depth, logits);
}

Result<Turn> Core::fork(TurnRecord& turn, const TurnOptions& options) {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;
  Scope scope = turn.scope;
  try {
    const base::MutexLock lock(books_.mutex);
    STEMMA_TRY_VOID(progress_.check_ready(turn));
    if (turn.bypass) {
      return Error(Errc::unsupported, "a bypassed turn holds something else than its words");
    }
    if (turn.approximate) {
      return Error(Errc::unsupported, "the sequence was shifted: it cannot be forked exactly");
    }
    const Prompt prompt = turn.text.prompt(turn.text.floor(turn.computed));
    tokens.assign(prompt.tokens.begin(), prompt.tokens.end());
    media.assign(prompt.media.begin(), prompt.media.end());
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to fork");
  }
  STEMMA_TRY(Turn twin, begin(scope, {tokens, media}, options, true));
  STEMMA_TRY_VOID(twin.execute());
  return twin;
}

Result<void> Core::shift(TurnRecord& turn, uint32_t keep, uint32_t discard) {
  const base::MutexLock lock(books_.mutex);
  return progress_.shift(turn, keep, discard);
}

Result<void> Core::finish(TurnRecord& turn, const Retain* retain) {
  const base::MutexLock lock(books_.mutex);
  return end_.finish(turn, retain);
}

Result<void> Core::abandon(TurnRecord& turn) {
  const base::MutexLock lock(books_.mutex);
  return end_.abandon(turn);
}

}  // namespace stemma::sequence
