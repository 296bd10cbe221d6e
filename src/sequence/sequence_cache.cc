#include "stemma/sequence.h"

#include <algorithm>
#include <utility>

#include "sequence/core.h"

namespace stemma {

using sequence::Core;

// ---- SequenceCache -----------------------------------------------------------------------------

namespace {

constexpr Error kMovedFrom(Errc::wrong_state, "the cache was moved from");
constexpr Error kEnded(Errc::wrong_state, "the turn has ended");

}  // namespace

Result<SequenceCache> SequenceCache::create(SequenceEngine& engine,
                                            const SequenceOptions& options) {
  STEMMA_TRY(Core * core, Core::create(engine, options));
  return SequenceCache(core);
}

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)) {}
SequenceCache& SequenceCache::operator=(SequenceCache&& other) noexcept {
  if (this != &other) {
    if (core_ != nullptr) core_->cache_gone();
    core_ = std::exchange(other.core_, nullptr);
  }
  return *this;
}
SequenceCache::~SequenceCache() {
  if (core_ != nullptr) core_->cache_gone();
}

Result<Turn> SequenceCache::begin(const Scope& scope, const Prompt& prompt,
                                  const TurnOptions& options) {
  if (core_ == nullptr) return kMovedFrom;
  return core_->begin(scope, prompt, options, false);
}
Result<SequenceReport> SequenceCache::lookup(const Scope& scope, const Prompt& prompt,
                                             const TurnOptions& options) const {
  if (core_ == nullptr) return kMovedFrom;
  return core_->lookup(scope, prompt, options);
}
bool SequenceCache::can_admit(std::string_view session) const {
  return core_ != nullptr && core_->can_admit(session);
}
HandedOn SequenceCache::hand_on(uint64_t from, uint64_t bytes) {
  return core_ == nullptr ? HandedOn() : core_->hand_on(from, bytes);
}
uint64_t SequenceCache::hand_on_from(uint64_t bytes) {
  return core_ == nullptr ? 0 : core_->hand_on_from(bytes);
}
Drained SequenceCache::drain(const DrainLimits& limits) {
  return core_ == nullptr ? Drained() : core_->drain(limits);
}
uint32_t SequenceCache::pending() const noexcept { return core_ == nullptr ? 0 : core_->pending(); }
Result<SequenceReport> SequenceCache::warm(const Scope& scope, const Prompt& prefix,
                                           Compute compute, void* user,
                                           const TurnOptions& options) {
  if (core_ == nullptr) return kMovedFrom;
  return core_->warm(scope, prefix, compute, user, options);
}
Result<Admitted> SequenceCache::admit(const Scope& scope, const Prompt& prompt,
                                      std::span<const SavedPart> parts,
                                      const TurnOptions& options) {
  if (core_ == nullptr) return kMovedFrom;
  return core_->admit(scope, prompt, parts, options);
}
uint32_t SequenceCache::saved_checkpoints(const Scope& scope, const Prompt& prompt,
                                          std::span<uint32_t> out) const {
  return core_ == nullptr ? 0 : core_->saved_checkpoints(scope, prompt, out);
}
uint32_t SequenceCache::saved_tokens(const Scope& scope, const Prompt& prompt) const {
  return core_ == nullptr ? 0 : core_->saved_tokens(scope, prompt);
}
void SequenceCache::forget_context() {
  if (core_ != nullptr) core_->forget_context();
}
void SequenceCache::drop_scope(const Scope& scope) {
  if (core_ != nullptr) core_->drop_scope(scope);
}
void SequenceCache::drop_saved() {
  if (core_ != nullptr) core_->drop_saved();
}
Result<Truncated> SequenceCache::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  if (core_ == nullptr) return kMovedFrom;
  return core_->truncate(scope, prompt, keep);
}
void SequenceCache::end_session(std::string_view session) {
  if (core_ != nullptr) core_->end_session(session);
}
std::string_view SequenceCache::policy() const noexcept {
  return core_ == nullptr ? std::string_view() : core_->policy();
}
SequenceStats SequenceCache::stats() const {
  return core_ == nullptr ? SequenceStats() : core_->stats();
}
SessionInfo SequenceCache::session(std::string_view session) const {
  return core_ == nullptr ? SessionInfo() : core_->session(session);
}
SequenceInfo SequenceCache::sequence(SequenceId id) const {
  return core_ == nullptr ? SequenceInfo() : core_->sequence(id);
}
Result<std::vector<SequenceContent>> SequenceCache::contents() const {
  if (core_ == nullptr) return kMovedFrom;
  return core_->contents();
}
void SequenceCache::check_invariants() const {
  if (core_ != nullptr) core_->check_invariants();
}

// ---- Turn --------------------------------------------------------------------------------------

Turn::Turn(Turn&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), record_(std::exchange(other.record_, nullptr)) {}
Turn& Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    if (active()) (void)abandon();
    core_ = std::exchange(other.core_, nullptr);
    record_ = std::exchange(other.record_, nullptr);
  }
  return *this;
}
Turn::~Turn() {
  if (active()) (void)abandon();
}

SequenceId Turn::sequence() const noexcept {
  return SequenceId{active() ? record_->sequence : sequence::kNoSequence};
}
uint64_t Turn::generation() const noexcept { return active() ? record_->generation : 0; }
uint32_t Turn::available() const noexcept { return active() ? record_->available : 0; }
uint32_t Turn::computed() const noexcept { return active() ? record_->computed : 0; }
uint32_t Turn::length() const noexcept { return active() ? record_->text.length() : 0; }
SequenceReport Turn::report() const noexcept {
  return active() ? record_->report : SequenceReport();
}
std::span<const uint32_t> Turn::media_to_process() const noexcept {
  if (!active()) return {};
  return record_->media_to_process;
}
std::span<const float> Turn::logits() const noexcept {
  return active() ? record_->logits_span : std::span<const float>();
}
uint32_t Turn::next_stop() const noexcept {
  if (!active()) return 0;
  const uint32_t length = record_->text.length();
  if (record_->stops.empty()) return length;
  // A stop that can still be kept later does not end a chunk earlier than necessary.
  const uint64_t latest = uint64_t{record_->stops.front()} + record_->late_tokens;
  return static_cast<uint32_t>(std::min<uint64_t>(latest, length));
}

Result<uint32_t> Turn::execute() {
  if (!active()) return kEnded;
  return core_->execute(*record_);
}
Result<void> Turn::computed(uint32_t n, uint64_t spent_ns) {
  if (!active()) return kEnded;
  return core_->computed(*record_, n, spent_ns);
}
Result<void> Turn::extend(std::span<const Token> tokens) {
  if (!active()) return kEnded;
  return core_->extend(*record_, tokens);
}
Result<void> Turn::reserve(uint32_t tokens) {
  if (!active()) return kEnded;
  return core_->reserve(*record_, tokens);
}
Result<void> Turn::rewind(uint32_t n) {
  if (!active()) return kEnded;
  return core_->rewind(*record_, n);
}
Result<void> Turn::attach_logits(uint32_t depth, std::span<const float> logits) {
  if (!active()) return kEnded;
  return core_->attach_logits(*record_, depth, logits);
}
Result<Turn> Turn::fork(const TurnOptions& options) {
  if (!active()) return kEnded;
  return core_->fork(*record_, options);
}
Result<void> Turn::shift(uint32_t keep, uint32_t discard) {
  if (!active()) return kEnded;
  return core_->shift(*record_, keep, discard);
}
Result<void> Turn::finish(const Retain* retain) {
  if (!active()) return kEnded;
  const Result<void> done = core_->finish(*record_, retain);
  // With bad arguments, or without memory, the turn stays active.
  if (!done && done.error().code() != Errc::stale) return done;
  core_->destroy(std::exchange(record_, nullptr));
  core_ = nullptr;
  return done;
}
Result<void> Turn::abandon() {
  if (!active()) return kEnded;
  const Result<void> done = core_->abandon(*record_);
  core_->destroy(std::exchange(record_, nullptr));
  core_ = nullptr;
  return done;
}

// ---- Words -------------------------------------------------------------------------------------

const char* to_string(Step step) noexcept {
  switch (step) {
    case Step::stay: return "stay";
    case Step::trim: return "trim";
    case Step::fork: return "fork";
    case Step::segments: return "segments";
    case Step::state: return "state";
    case Step::checkpoint: return "checkpoint";
  }
  return "?";
}

const char* to_string(SequenceMiss reason) noexcept {
  switch (reason) {
    case SequenceMiss::none: return "none";
    case SequenceMiss::unknown_scope: return "unknown_scope";
    case SequenceMiss::first_use: return "first_use";
    case SequenceMiss::too_short: return "too_short";
    case SequenceMiss::at_most: return "at_most";
    case SequenceMiss::media: return "media";
    case SequenceMiss::no_rewind: return "no_rewind";
    case SequenceMiss::not_saved: return "not_saved";
    case SequenceMiss::not_worth: return "not_worth";
    case SequenceMiss::mode: return "mode";
    case SequenceMiss::bypassed: return "bypassed";
    case SequenceMiss::failed: return "failed";
  }
  return "?";
}

const char* to_string(CaptureFate fate) noexcept {
  switch (fate) {
    case CaptureFate::saved: return "saved";
    case CaptureFate::present: return "present";
    case CaptureFate::coalesced: return "coalesced";
    case CaptureFate::stale: return "stale";
    case CaptureFate::crowded: return "crowded";
    case CaptureFate::too_large: return "too_large";
    case CaptureFate::no_room: return "no_room";
    case CaptureFate::failed: return "failed";
  }
  return "?";
}

}  // namespace stemma
