#include "sequence/books.h"

#include <algorithm>
#include <new>
#include <utility>

#include "retain/policies.h"
#include "retain/touch.h"
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
  const bool is_share = share >= 0 && share <= 1;  // NaN fails this test.
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

// The costs that the options give.
Costs believed(const SequenceOptions& options, const EngineTraits& traits) {
  // An engine that moves ranges runs on a device, where a call takes longer.
  constexpr uint64_t kDeviceCallNs = 500'000;
  const uint64_t least = traits.range_tokens == 0 ? 0 : kDeviceCallNs;
  const MoveCost move{std::max(options.move_call_ns, least), options.move_byte_ps};
  return {.token_ns = options.compute_token_ns,
          .cell_ps = options.attention_cell_ps,
          .answer_cell_ps = options.attention_cell_ps,
          .save = move,
          .load = move};
}

}  // namespace

// ---- Creation ----------------------------------------------------------------------------------

Books::Books(SequenceEngine& of, const SequenceOptions& with)
    : engine(&of),
      options(with),
      clock(with.clock != nullptr ? with.clock : &Clock::monotonic()),
      traits(of.traits()),
      meter(believed(with, of.traits())),
      queue(records, stats, with.pending_captures) {}

Result<void> Books::check(const SequenceOptions& options, const EngineTraits& traits) {
  STEMMA_TRY_VOID(check_options(options));
  return check_traits(traits);
}

Result<void> Books::set_up() {
  const uint64_t positions =
      traits.unified ? traits.context_tokens : uint64_t{traits.context_tokens} * traits.sequences;
  // Twice the positions there are: words that two sequences share are counted for each of them.
  if (!live.create(traits.sequences, 2 * std::max<uint64_t>(positions, 16)) ||
      !idle_order.create(traits.sequences, 1) || !idle_order.ensure(traits.sequences - 1) ||
      !queue.create(traits.sequences) || !sessions.create(options.sessions)) {
    return Error(Errc::out_of_memory, "no memory for a sequence cache");
  }
  records.resize(traits.sequences);
  flags.resize(traits.sequences);
  nobody.resize(traits.sequences);
  room.create(traits);
  return make_stores();
}

Result<void> Books::make_stores() {
  const bool saves =
      allows(options.reuse, Reuse::saved) && options.saved_bytes != 0 && traits.fork != Fork::none;
  uint64_t budget = options.saved_bytes;
  // Without attention to the whole past, a state is a checkpoint and a checkpoint is a state.
  if (saves && traits.checkpoints && !any() && traits.bytes_per_token != 0) {
    // The rounded product may be larger than the budget.
    const double part = static_cast<double>(budget) * options.checkpoint_share;
    const uint64_t share =
        part >= static_cast<double>(budget) ? budget : static_cast<uint64_t>(part);
    STEMMA_TRY(checkpoints, make_store(share, traits.checkpoint_bytes));
    use_checkpoints = true;
    budget -= share;
  }
  if (saves && traits.segments && (any() || use_checkpoints)) {
    budget -= make_mover(budget);
    STEMMA_TRY(segments, make_segments(budget));
  } else if (saves) {
    const uint64_t tokens = options.segment_tokens;
    STEMMA_TRY(states, make_store(budget, traits.fixed_bytes + traits.checkpoint_bytes +
                                              tokens * traits.bytes_per_token));
    use_states = true;
  }
  if (options.logits_bytes != 0) {
    constexpr uint64_t kSmallVocabulary = 1024 * sizeof(float);
    STEMMA_TRY(logits, make_store(options.logits_bytes, kSmallVocabulary));
  }
  return {};
}

Result<std::unique_ptr<SegmentStore>> Books::make_segments(uint64_t budget) {
  SegmentStore::Settings settings;
  settings.engine = engine;
  settings.mover = mover.get();
  settings.budget_bytes = budget;
  settings.segment_tokens = options.segment_tokens;
  settings.segment_bytes =
      traits.fixed_bytes + uint64_t{options.segment_tokens} * traits.bytes_per_token;
  if (heard()) {
    const bool words = options.listener->keeps_words();
    settings.label_bytes =
        sizeof(PartLabel) + (words ? uint64_t{options.segment_tokens} * sizeof(uint32_t) : 0);
  }
  settings.quotas = options.quotas;
  settings.policy = options.policy;
  settings.clock = clock;
  return SegmentStore::create(settings);
}

uint64_t Books::make_mover(uint64_t budget) {
  if (traits.range_tokens == 0) return 0;
  constexpr uint64_t kMost = uint64_t{4} << 30U;
  RangeMover::Options settings;
  settings.hook = options.pinned;
  settings.threads = options.range_threads;
  const uint64_t fixed = traits.fixed_bytes + traits.checkpoint_bytes;
  const uint64_t least = fixed + options.segment_tokens * traits.bytes_per_token;
  const uint64_t range = fixed + uint64_t{std::max(traits.range_tokens, options.segment_tokens)} *
                                     traits.bytes_per_token;
  // All buffers together take at most an eighth of the budget for saved state.
  constexpr uint64_t kPage = 4096;
  const uint64_t most = std::min(budget / 8, kMost) / settings.buffers / kPage * kPage;
  settings.buffer_bytes = std::min(range, most);
  if (settings.buffer_bytes < least) return 0;
  mover = RangeMover::create(settings);
  return mover == nullptr ? 0 : mover->buffer_bytes() * settings.buffers;
}

Result<std::unique_ptr<StateStore>> Books::make_store(uint64_t budget, uint64_t entry_bytes) {
  StateStore::Options settings;
  settings.budget_bytes = budget;
  const uint64_t entries = budget / std::max<uint64_t>(entry_bytes, 1) + 1;
  settings.max_entries = static_cast<uint32_t>(std::clamp<uint64_t>(entries, 16, 1U << 17U));
  settings.max_positions =
      std::clamp<uint64_t>(uint64_t{settings.max_entries} * 1024, traits.context_tokens * 4ULL,
                           std::max<uint64_t>(1U << 26U, traits.context_tokens * 4ULL));
  // This store tells its policy nothing about contents. So a policy that learns from contents, and
  // takes a megabyte, is replaced by lru.
  const bool learns = retain::most_bytes(options.policy).fixed != 0;
  settings.policy = learns ? std::string_view("lru") : options.policy;
  settings.clock = clock;
  return StateStore::create(settings, lexicon);
}

// ---- What a sequence holds ---------------------------------------------------------------------

Held Books::resumable_part(uint32_t sequence) const noexcept {
  Held held = records[sequence].held;
  const bool recurrent = traits.rewind == Rewind::exact || traits.rewind == Rewind::bounded;
  if (records[sequence].shifted && recurrent) held.begin = held.end;
  return held;
}

uint64_t Books::cells_of_others(uint32_t sequence) const noexcept {
  if (!traits.unified) return 0;
  return room.used() - std::min<uint64_t>(room.used(), room.length(SequenceId{sequence}));
}

uint64_t Books::cells_in_turns(uint32_t sequence) const noexcept {
  if (!traits.unified) return 0;
  // A shared cell is counted once for each sequence, but the sum is at most the cells in use.
  uint64_t cells = 0;
  for (uint32_t s = 0; s < records.size(); ++s) {
    if (s != sequence && in_turn(records[s])) cells += room.length(SequenceId{s});
  }
  return std::min(cells, room.used());
}

bool Books::is_own(const TurnRecord& turn, uint32_t sequence) const noexcept {
  return turn.session != SessionTable::kNone &&
         records[sequence].session == sessions[turn.session].id;
}

// ---- Asking the engine -------------------------------------------------------------------------

Held Books::ask(uint32_t sequence) {
  Held held;
  {
    const Unlocked unlocked(*this);
    held = engine->held(SequenceId{sequence});
  }
  at(sequence).held = held;
  return held;
}

bool Books::verify(uint32_t sequence, uint32_t n) {
  const Held held = ask(sequence);
  return held.whole && held.end == n && can_resume(traits, held, n);
}

void Books::settle_engine() {
  const Unlocked unlocked(*this);
  engine->settle();
}

void Books::warn(const char* what) {
  const Unlocked unlocked(*this);
  log(LogLevel::warning, what);
}

// ---- Noting a fact -----------------------------------------------------------------------------

void Books::set_state(uint32_t sequence, SequenceState state) noexcept {
  SequenceRecord& record = at(sequence);
  if (idle_order.linked(sequence)) idle_order.unlink(sequence);
  record.state = state;
  if (state == SequenceState::idle) {
    idle_order.push_back(0, sequence);
    at(sequence).slowed_ns = 0;
  }
  changed();
}

void Books::index_up_to(TurnRecord& turn, uint32_t n) noexcept {
  const uint32_t known_now = known(turn.sequence);
  // A bypassed turn may compute something else than its words say.
  if (turn.approximate || turn.forgotten || turn.bypass || known_now >= n) return;
  const auto words = turn.text.all().subspan(known_now, n - known_now);
  Result<void> added = Error(Errc::out_of_memory, "");
  try {
    added = live.append(SequenceId{turn.sequence}, turn.scope, words);
  } catch (const std::bad_alloc&) {
    // Handled like an append() that returns an error.
  }
  // Words that are not indexed are not found; nothing worse happens.
  if (!added) turn.approximate = true;
}

void Books::count(TurnRecord& turn) noexcept {
  if (turn.counted) return;
  turn.counted = true;
  const SequenceReport& report = turn.report;
  ++stats.turns;
  stats.prompt_tokens += report.prompt_tokens;
  stats.reused_tokens += report.reused_tokens;
  stats.evaluated_tokens += report.evaluated_tokens;
  ++stats.outcomes[static_cast<size_t>(report.outcome)];
  ++stats.reasons[static_cast<size_t>(report.reason)];
  for (size_t step = 0; step < kStepCount; ++step) {
    stats.steps[step] += report.steps[step] != 0 ? 1 : 0;
    stats.step_tokens[step] += report.steps[step];
  }
}

Result<void> Books::check_turn(const TurnRecord& turn) {
  if (gone) return Error(Errc::stale, "the cache is gone");
  if (turn.sequence != kNoSequence) return {};
  ++stats.stale_calls;
  return Error(Errc::stale, "the context was made anew: this turn has no sequence any more");
}

Touch Books::touch_of(const OwnRetain& retain, uint32_t depth) const noexcept {
  // Quotas apply to segments only: no other entry belongs to a tenant.
  return retain::touch_of(retain.get(), depth - 1, clock->now_ns());
}

}  // namespace stemma::sequence
