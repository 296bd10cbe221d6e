#include "capi/callback_engine.h"

#include "base/invalid.h"

namespace stemma::capi {
namespace {

using base::invalid;

stemma_range raw(Range range) noexcept { return {range.begin, range.end}; }
uint32_t raw(Part part) noexcept { return static_cast<uint32_t>(part); }

}  // namespace

Result<EngineTraits> decode_traits(const stemma_engine_traits* given) noexcept {
  if (given == nullptr) return invalid("traits is null");
  STEMMA_TRY(const stemma_engine_traits c, read_sized(given));
  if (c.unified > 1) return invalid("traits.unified is neither 0 nor 1", c.unified);
  if (c.rewind > STEMMA_REWIND_EXACT) return invalid("traits.rewind is no stemma_rewind", c.rewind);
  if (c.fork > STEMMA_FORK_NONE) return invalid("traits.fork is no stemma_fork", c.fork);
  if (c.segments > 1) return invalid("traits.segments is neither 0 nor 1", c.segments);
  if (c.checkpoints > 1) return invalid("traits.checkpoints is neither 0 nor 1", c.checkpoints);
  if (c.shift > 1) return invalid("traits.shift is neither 0 nor 1", c.shift);
  return EngineTraits{.sequences = c.sequences,
                      .context_tokens = c.context_tokens,
                      .unified = c.unified != 0,
                      .rewind = static_cast<Rewind>(c.rewind),
                      .rewind_tokens = c.rewind_tokens,
                      .fork = static_cast<Fork>(c.fork),
                      .segments = c.segments != 0,
                      .checkpoints = c.checkpoints != 0,
                      .shift = c.shift != 0,
                      .bytes_per_token = c.bytes_per_token,
                      .fixed_bytes = c.fixed_bytes,
                      .checkpoint_bytes = c.checkpoint_bytes};
}

Result<void> from_status(stemma_status status, const char* failed) noexcept {
  if (status == STEMMA_OK) return {};
  if (status < STEMMA_OK || status > STEMMA_CORRUPT) {
    return Error(Errc::copy_failed, failed, static_cast<uint32_t>(status));
  }
  return Error(static_cast<Errc>(status), failed);
}

Result<CallbackEngine> CallbackEngine::create(const stemma_engine* given) noexcept {
  if (given == nullptr) return invalid("engine is null");
  STEMMA_TRY(const stemma_engine c, read_sized(given));
  if (c.reserved != 0) return invalid("engine.reserved is not 0", c.reserved);
  if (c.traits == nullptr) return invalid("engine.traits is null");
  STEMMA_TRY(const EngineTraits traits, decode_traits(c.traits));
  if (c.held == nullptr) return invalid("engine.held is null");
  if (c.clear == nullptr) return invalid("engine.clear is null");
  if (c.trim == nullptr) return invalid("engine.trim is null");
  if (c.copy == nullptr && (traits.fork == Fork::shared || traits.fork == Fork::copy)) {
    return invalid("engine.copy is null, and traits.fork needs it");
  }
  if ((c.size == nullptr) != (c.save == nullptr) || (c.save == nullptr) != (c.load == nullptr)) {
    return invalid("engine.size, engine.save and engine.load: only some of them are null");
  }
  if (c.save == nullptr &&
      (traits.segments || traits.checkpoints || traits.fork == Fork::restore)) {
    return invalid("engine.save is null, and the traits need it");
  }
  if (c.shift == nullptr && traits.shift) {
    return invalid("engine.shift is null, and traits.shift is 1");
  }
  stemma_engine kept = c;
  kept.traits = nullptr;
  return CallbackEngine(kept, traits);
}

Held CallbackEngine::held(SequenceId sequence) {
  stemma_held held{0, 0, 0};
  engine_.held(engine_.user, to_index(sequence), &held);
  if (held.begin > held.end || held.end > traits_.context_tokens || held.whole > 1) {
    return {0, 0, false};
  }
  return {held.begin, held.end, held.whole != 0};
}

Result<void> CallbackEngine::clear(SequenceId sequence) {
  return from_status(engine_.clear(engine_.user, to_index(sequence)), "the engine's clear failed");
}

Result<void> CallbackEngine::trim(SequenceId sequence, uint32_t n) {
  return from_status(engine_.trim(engine_.user, to_index(sequence), n), "the engine's trim failed");
}

Result<void> CallbackEngine::copy(SequenceId from, SequenceId to, Range range) {
  if (engine_.copy == nullptr) return Error(Errc::unsupported, "engine.copy was not given");
  const stemma_range c = raw(range);
  return from_status(engine_.copy(engine_.user, to_index(from), to_index(to), &c),
                     "the engine's copy failed");
}

Result<uint64_t> CallbackEngine::size(SequenceId sequence, Part part, Range range) {
  if (engine_.size == nullptr) return Error(Errc::unsupported, "engine.size was not given");
  const stemma_range c = raw(range);
  uint64_t bytes = 0;
  STEMMA_TRY_VOID(from_status(engine_.size(engine_.user, to_index(sequence), raw(part), &c, &bytes),
                              "the engine's size failed"));
  return bytes;
}

Result<uint64_t> CallbackEngine::save(SequenceId sequence, Part part, Range range,
                                      std::span<uint8_t> out) {
  if (engine_.save == nullptr) return Error(Errc::unsupported, "engine.save was not given");
  const stemma_range c = raw(range);
  uint64_t written = 0;
  STEMMA_TRY_VOID(from_status(engine_.save(engine_.user, to_index(sequence), raw(part), &c,
                                           out.data(), out.size(), &written),
                              "the engine's save failed"));
  if (written > out.size()) {
    return Error(Errc::corrupt, "the engine's save says that it wrote more than there is room for");
  }
  return written;
}

Result<void> CallbackEngine::load(SequenceId sequence, Part part, Range saved, Range wanted,
                                  std::span<const uint8_t> bytes) {
  if (engine_.load == nullptr) return Error(Errc::unsupported, "engine.load was not given");
  const stemma_range whole = raw(saved);
  const stemma_range some = raw(wanted);
  return from_status(engine_.load(engine_.user, to_index(sequence), raw(part), &whole, &some,
                                  bytes.data(), bytes.size()),
                     "the engine's load failed");
}

Result<void> CallbackEngine::shift(SequenceId sequence, uint32_t keep, uint32_t discard) {
  if (engine_.shift == nullptr) return Error(Errc::unsupported, "engine.shift was not given");
  return from_status(engine_.shift(engine_.user, to_index(sequence), keep, discard),
                     "the engine's shift failed");
}

// These numbers mean the same in C and in C++.
static_assert(STEMMA_REWIND_ANY == static_cast<uint32_t>(Rewind::any));
static_assert(STEMMA_REWIND_WINDOW == static_cast<uint32_t>(Rewind::window));
static_assert(STEMMA_REWIND_BOUNDED == static_cast<uint32_t>(Rewind::bounded));
static_assert(STEMMA_REWIND_EXACT == static_cast<uint32_t>(Rewind::exact));
static_assert(STEMMA_FORK_SHARED == static_cast<uint32_t>(Fork::shared));
static_assert(STEMMA_FORK_COPY == static_cast<uint32_t>(Fork::copy));
static_assert(STEMMA_FORK_RESTORE == static_cast<uint32_t>(Fork::restore));
static_assert(STEMMA_FORK_NONE == static_cast<uint32_t>(Fork::none));
static_assert(STEMMA_PART_STATE == static_cast<uint32_t>(Part::state));
static_assert(STEMMA_PART_SEGMENT == static_cast<uint32_t>(Part::segment));
static_assert(STEMMA_PART_CHECKPOINT == static_cast<uint32_t>(Part::checkpoint));

}  // namespace stemma::capi
