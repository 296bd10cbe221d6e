#include "capi/sequence_decode.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/invalid.h"
#include "capi/last_error.h"

namespace stemma::capi {
namespace {

constexpr size_t kMaxMessageEnds = 0x7FFF'FFFFU;

using base::invalid;

template <class T, size_t N, class U, size_t M>
void put(const std::array<T, N>& from, U (&to)[M]) noexcept {
  static_assert(N <= M && sizeof(T) == sizeof(U));
  std::copy(from.begin(), from.end(), to);
}

// Copies the struct's defaults, as far as the caller's struct has room.
template <class T>
stemma_status defaults(const char* call, T* out) noexcept {
  if (out == nullptr) return fail(call, invalid("out is null"));
  if (const Result<void> room = check_room(*out); !room) return fail(call, room.error());
  write_sized(out, Sized<T>::initial());
  return STEMMA_OK;
}

template <size_t N>
const char* name_of(const char* const (&names)[N], uint32_t number) noexcept {
  return number < N ? names[number] : "unknown";
}

}  // namespace

Result<std::vector<SavedPart>> decode_parts(const stemma_saved_part* parts, size_t count) {
  if (parts == nullptr && count != 0) return invalid("parts is null, and part_count is not 0");
  if (count > kMaxMessageEnds) return invalid("part_count is more than 2^31 - 1");
  std::vector<SavedPart> out;
  for (size_t i = 0; i < count; ++i) {
    const stemma_saved_part& part = parts[i];
    const auto number = static_cast<uint32_t>(i);
    if (part.kind < STEMMA_SAVED_SEGMENT || part.kind > STEMMA_SAVED_LOGITS) {
      return invalid("kind of this part is no stemma_saved_kind", number);
    }
    if (part.reserved != 0) return invalid("reserved of this part is not 0", number);
    if (part.bytes == nullptr || part.size == 0) return invalid("this part has no bytes", number);
    if (part.range.begin >= part.range.end) return invalid("range of this part is empty", number);
    out.push_back({static_cast<EntryKind>(part.kind),
                   {part.range.begin, part.range.end},
                   {part.bytes, part.size}});
  }
  return out;
}

Result<SequenceOptions> decode(const stemma_sequence_options& c) {
  if (c.listener.keep_words > 1) {
    return invalid("options.listener.keep_words is neither 0 nor 1", c.listener.keep_words);
  }
  if (c.listener.reserved != 0) {
    return invalid("options.listener.reserved is not 0", c.listener.reserved);
  }
  if (c.reuse > STEMMA_REUSE_EVERYTHING)
    return invalid("options.reuse is no stemma_reuse", c.reuse);
  SequenceOptions options;
  STEMMA_TRY(options.quotas, decode_quotas(c.quotas, c.quota_count));
  options.reuse = static_cast<Reuse>(c.reuse);
  options.saved_bytes = c.saved_bytes;
  options.checkpoint_share = c.checkpoint_share;
  options.logits_bytes = c.logits_bytes;
  options.segment_tokens = c.segment_tokens;
  options.least_tokens = c.least_tokens;
  options.interval_tokens = c.interval_tokens;
  options.marks = c.marks;
  options.pending_captures = c.pending_captures;
  options.sessions = c.sessions;
  if (c.policy != nullptr) options.policy = c.policy;
  options.compute_token_ns = c.compute_token_ns;
  options.move_byte_ps = c.move_byte_ps;
  options.move_call_ns = c.move_call_ns;
  return options;
}

Result<void> decode(const stemma_turn_options* given, TurnOptions& out) {
  if (given == nullptr) return {};
  STEMMA_TRY(const stemma_turn_options c, read_sized(given));
  if (c.exclusive > 1) return invalid("turn options' exclusive is neither 0 nor 1", c.exclusive);
  if (c.bypass > 1) return invalid("turn options' bypass is neither 0 nor 1", c.bypass);
  if (c.keep > 1) return invalid("turn options' keep is neither 0 nor 1", c.keep);
  if (c.want_logits > 1) {
    return invalid("turn options' want_logits is neither 0 nor 1", c.want_logits);
  }
  if (c.reuse > STEMMA_REUSE_EVERYTHING) {
    return invalid("turn options' reuse is no stemma_reuse", c.reuse);
  }
  if (c.message_ends == nullptr && c.message_end_count != 0) {
    return invalid("turn options' message_ends is null, and message_end_count is not 0");
  }
  if (c.message_end_count > kMaxMessageEnds) {
    return invalid("turn options' message_end_count is more than 2^31 - 1");
  }
  STEMMA_TRY(out.session, decode_session(static_cast<const char*>(c.session.data), c.session.size));
  STEMMA_TRY_VOID(decode(c.retain, out.retain));
  out.exclusive = c.exclusive != 0;
  out.tenant = TenantId{c.tenant};
  out.reuse = static_cast<Reuse>(c.reuse);
  out.bypass = c.bypass != 0;
  out.keep = c.keep != 0;
  out.at_most = c.at_most;
  out.evaluate_at_least = c.evaluate_at_least;
  out.reserve_tokens = c.reserve_tokens;
  out.want_logits = c.want_logits != 0;
  out.message_ends = {c.message_ends, c.message_end_count};
  return {};
}

Result<std::string_view> decode_session(const char* session, size_t size) noexcept {
  if ((session == nullptr && size != 0) || size > kMaxBytes) {
    return invalid("session: null, or longer than 2^31 - 1");
  }
  return size == 0 ? std::string_view() : std::string_view(session, size);
}

void encode(const SequenceReport& report, stemma_sequence_report* out) noexcept {
  stemma_sequence_report c{};
  c.prompt_tokens = report.prompt_tokens;
  c.matched_tokens = report.matched_tokens;
  c.reused_tokens = report.reused_tokens;
  c.evaluated_tokens = report.evaluated_tokens;
  c.media_to_process = report.media_to_process;
  c.logits = report.logits ? 1 : 0;
  c.failures = report.failures;
  c.victims = report.victims;
  c.outcome = static_cast<uint32_t>(report.outcome);
  c.reason = static_cast<uint32_t>(report.reason);
  put(report.steps, c.steps);
  c.restored_bytes = report.restored_bytes;
  c.saved_bytes = report.saved_bytes;
  c.plan_ns = report.plan_ns;
  c.execute_ns = report.execute_ns;
  write_sized(out, c);
}

void encode(const SequenceStats& stats, stemma_sequence_stats* out) noexcept {
  stemma_sequence_stats c{};
  c.turns = stats.turns;
  c.prompt_tokens = stats.prompt_tokens;
  c.reused_tokens = stats.reused_tokens;
  c.evaluated_tokens = stats.evaluated_tokens;
  put(stats.outcomes, c.outcomes);
  put(stats.reasons, c.reasons);
  put(stats.steps, c.steps);
  put(stats.step_tokens, c.step_tokens);
  put(stats.failures, c.failures);
  put(stats.captures, c.captures);
  c.quarantined = stats.quarantined;
  c.victims = stats.victims;
  c.victims_saved = stats.victims_saved;
  c.stale_calls = stats.stale_calls;
  c.broken = stats.broken;
  c.restored_bytes = stats.restored_bytes;
  c.captured_bytes = stats.captured_bytes;
  c.sequences = stats.sequences;
  c.free_sequences = stats.free_sequences;
  c.idle_sequences = stats.idle_sequences;
  c.leased_sequences = stats.leased_sequences;
  c.broken_sequences = stats.broken_sequences;
  c.sessions = stats.sessions;
  c.pending = stats.pending;
  c.context_tokens = stats.context_tokens;
  c.used_tokens = stats.used_tokens;
  c.saved_bytes = stats.saved_bytes;
  c.segment_bytes = stats.segment_bytes;
  c.state_bytes = stats.state_bytes;
  c.checkpoint_bytes = stats.checkpoint_bytes;
  c.logits_bytes = stats.logits_bytes;
  c.index_bytes = stats.index_bytes;
  c.segment_evictions = stats.segment_evictions;
  c.state_evictions = stats.state_evictions;
  c.compute_token_ns = stats.compute_token_ns;
  c.move_byte_ps = stats.move_byte_ps;
  c.move_call_ns = stats.move_call_ns;
  write_sized(out, c);
}

void encode(const SequenceInfo& info, stemma_sequence_info* out) noexcept {
  write_sized(out, {.struct_size = 0,
                    .state = static_cast<uint32_t>(info.state),
                    .generation = info.generation,
                    .length = info.length,
                    .unsaved_tokens = info.unsaved_tokens,
                    .approximate = info.approximate ? 1U : 0U,
                    .reserved = 0});
}

void encode(const SessionInfo& info, stemma_session_info* out) noexcept {
  const bool somewhere = info.resident || info.in_flight;
  write_sized(out, {.struct_size = 0,
                    .known = info.known ? 1U : 0U,
                    .in_flight = info.in_flight ? 1U : 0U,
                    .resident = info.resident ? 1U : 0U,
                    .sequence = somewhere ? to_index(info.sequence) : STEMMA_NO_SEQUENCE,
                    .length = info.length,
                    .turns = info.turns,
                    .last_used_ns = info.last_used_ns});
}

stemma_sequence_content encode(const SequenceContent& content) noexcept {
  stemma_sequence_content c{};
  const bool live = content.kind == SequenceContent::Kind::live;
  c.struct_size = sizeof c;
  c.kind = static_cast<uint32_t>(content.kind);
  std::memcpy(c.scope.digest, content.scope.digest().data(), sizeof c.scope.digest);
  c.depth = content.depth;
  c.sequence = live ? to_index(content.sequence) : STEMMA_NO_SEQUENCE;
  c.bytes = content.bytes;
  c.leased = content.leased ? 1 : 0;
  return c;
}

// These numbers mean the same in C and in C++.
#define SAME(c, cpp) static_assert((c) == static_cast<uint32_t>(cpp))
SAME(STEMMA_SAVED_SEGMENT, EntryKind::segment);
SAME(STEMMA_SAVED_STATE, EntryKind::state);
SAME(STEMMA_SAVED_CHECKPOINT, EntryKind::checkpoint);
SAME(STEMMA_SAVED_LOGITS, EntryKind::logits);
SAME(STEMMA_REUSE_DISABLED, Reuse::disabled);
SAME(STEMMA_REUSE_LIVE, Reuse::live);
SAME(STEMMA_REUSE_SAVED, Reuse::saved);
SAME(STEMMA_REUSE_EVERYTHING, Reuse::everything);
SAME(STEMMA_STEP_STAY, Step::stay);
SAME(STEMMA_STEP_TRIM, Step::trim);
SAME(STEMMA_STEP_FORK, Step::fork);
SAME(STEMMA_STEP_SEGMENTS, Step::segments);
SAME(STEMMA_STEP_STATE, Step::state);
SAME(STEMMA_STEP_CHECKPOINT, Step::checkpoint);
SAME(STEMMA_STEP_CHECKPOINT + 1, kStepCount);
SAME(STEMMA_SEQUENCE_MISS_NONE, SequenceMiss::none);
SAME(STEMMA_SEQUENCE_MISS_UNKNOWN_SCOPE, SequenceMiss::unknown_scope);
SAME(STEMMA_SEQUENCE_MISS_FIRST_USE, SequenceMiss::first_use);
SAME(STEMMA_SEQUENCE_MISS_TOO_SHORT, SequenceMiss::too_short);
SAME(STEMMA_SEQUENCE_MISS_AT_MOST, SequenceMiss::at_most);
SAME(STEMMA_SEQUENCE_MISS_MEDIA, SequenceMiss::media);
SAME(STEMMA_SEQUENCE_MISS_NO_REWIND, SequenceMiss::no_rewind);
SAME(STEMMA_SEQUENCE_MISS_NOT_SAVED, SequenceMiss::not_saved);
SAME(STEMMA_SEQUENCE_MISS_NOT_WORTH, SequenceMiss::not_worth);
SAME(STEMMA_SEQUENCE_MISS_MODE, SequenceMiss::mode);
SAME(STEMMA_SEQUENCE_MISS_BYPASSED, SequenceMiss::bypassed);
SAME(STEMMA_SEQUENCE_MISS_FAILED, SequenceMiss::failed);
SAME(STEMMA_SEQUENCE_MISS_FAILED + 1, kSequenceMissCount);
SAME(STEMMA_CAPTURE_SAVED, CaptureFate::saved);
SAME(STEMMA_CAPTURE_PRESENT, CaptureFate::present);
SAME(STEMMA_CAPTURE_COALESCED, CaptureFate::coalesced);
SAME(STEMMA_CAPTURE_STALE, CaptureFate::stale);
SAME(STEMMA_CAPTURE_CROWDED, CaptureFate::crowded);
SAME(STEMMA_CAPTURE_TOO_LARGE, CaptureFate::too_large);
SAME(STEMMA_CAPTURE_NO_ROOM, CaptureFate::no_room);
SAME(STEMMA_CAPTURE_FAILED, CaptureFate::failed);
SAME(STEMMA_CAPTURE_FAILED + 1, kCaptureFateCount);
SAME(STEMMA_SEQUENCE_FREE, SequenceState::free);
SAME(STEMMA_SEQUENCE_IDLE, SequenceState::idle);
SAME(STEMMA_SEQUENCE_LEASED, SequenceState::leased);
SAME(STEMMA_SEQUENCE_BROKEN, SequenceState::broken);
SAME(STEMMA_CONTENT_LIVE, SequenceContent::Kind::live);
SAME(STEMMA_CONTENT_SEGMENT_PATH, SequenceContent::Kind::segment_path);
SAME(STEMMA_CONTENT_STATE, SequenceContent::Kind::state);
SAME(STEMMA_CONTENT_CHECKPOINT, SequenceContent::Kind::checkpoint);
SAME(STEMMA_CONTENT_LOGITS, SequenceContent::Kind::logits);
#undef SAME

}  // namespace stemma::capi

using namespace stemma;
using namespace stemma::capi;

stemma_status stemma_sequence_options_defaults(stemma_sequence_options* out) {
  return defaults(__func__, out);
}

stemma_status stemma_turn_options_defaults(stemma_turn_options* out) {
  return defaults(__func__, out);
}

const char* stemma_step_name(uint32_t step) {
  return step < kStepCount ? to_string(static_cast<Step>(step)) : "unknown";
}

const char* stemma_sequence_miss_name(uint32_t reason) {
  return reason < kSequenceMissCount ? to_string(static_cast<SequenceMiss>(reason)) : "unknown";
}

const char* stemma_capture_fate_name(uint32_t fate) {
  return fate < kCaptureFateCount ? to_string(static_cast<CaptureFate>(fate)) : "unknown";
}

const char* stemma_reuse_name(uint32_t reuse) {
  static constexpr const char* kNames[] = {"disabled", "live", "saved", "everything"};
  return name_of(kNames, reuse);
}

const char* stemma_sequence_state_name(uint32_t state) {
  static constexpr const char* kNames[] = {"free", "idle", "leased", "broken"};
  return name_of(kNames, state);
}

const char* stemma_content_kind_name(uint32_t kind) {
  static constexpr const char* kNames[] = {"live", "segment_path", "state", "checkpoint", "logits"};
  return name_of(kNames, kind);
}
