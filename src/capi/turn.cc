// stemma_turn_*: each is a few lines around the C++ call of the same name.
#include <utility>

#include "base/invalid.h"
#include "capi/last_error.h"
#include "capi/sequence_handles.h"

using namespace stemma;
using namespace stemma::capi;

namespace {

using TurnUse = SlotTable<HeldTurn>::Use;

using base::invalid;

// Runs `body` with the turn behind the number; no other call changes its cache meanwhile.
template <class Body>
stemma_status with_held(const char* call, stemma_turn number, Body&& body) noexcept {
  TurnUse use(turns(), number);
  if (use.found() != Found::yes) [[unlikely]] {
    return fail(call, why_no_turn(use.found(), number));
  }
  const Change right(*use->home);
  if (!right) return fail(call, Change::kBusy);
  return end(call, caught([&] { return body(*use); }));
}

template <class Body>
stemma_status with_turn(const char* call, stemma_turn number, Body&& body) noexcept {
  return with_held(call, number, [&](HeldTurn& held) { return body(held.turn); });
}

// Runs `last`, which may end the turn. If the turn has ended, its number is gone, whatever `last`
// returns.
template <class Last>
stemma_status end_turn(const char* call, stemma_turn number, Last&& last) noexcept {
  SequenceHome* home = nullptr;
  Result<void> done;
  {
    TurnUse use(turns(), number);
    if (use.found() != Found::yes) [[unlikely]] {
      return fail(call, why_no_turn(use.found(), number));
    }
    const Change right(*use->home);
    if (!right) return fail(call, Change::kBusy);
    done = caught([&] { return last(use->turn); });
    if (use->turn.active()) return end(call, done);
    home = use->home;
    use.drop();
  }
  home->let_go();
  return end(call, done);
}

}  // namespace

stemma_status stemma_turn_positions(stemma_turn turn, stemma_turn_place* out) {
  return with_turn(__func__, turn, [&](const Turn& t) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    *out = {.generation = t.generation(),
            .sequence = to_index(t.sequence()),
            .available = t.available(),
            .computed = t.computed(),
            .length = t.length(),
            .next_stop = t.next_stop(),
            .reserved = 0};
    return {};
  });
}

stemma_status stemma_turn_report(stemma_turn turn, stemma_sequence_report* out) {
  return with_turn(__func__, turn, [&](const Turn& t) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    encode(t.report(), out);
    return {};
  });
}

stemma_status stemma_turn_media_to_process(stemma_turn turn, uint32_t* out, size_t capacity,
                                           size_t* count) {
  return with_turn(__func__, turn, [&](const Turn& t) -> Result<void> {
    return fill(t.media_to_process(), out, capacity, count);
  });
}

stemma_status stemma_turn_logits(stemma_turn turn, const float** logits, size_t* count) {
  return with_turn(__func__, turn, [&](const Turn& t) -> Result<void> {
    if (logits == nullptr) return invalid("logits is null");
    if (count == nullptr) return invalid("count is null");
    *logits = t.logits().empty() ? nullptr : t.logits().data();
    *count = t.logits().size();
    return {};
  });
}

stemma_status stemma_turn_execute(stemma_turn turn, uint32_t* available) {
  return with_turn(__func__, turn, [&](Turn& t) -> Result<void> {
    STEMMA_TRY(const uint32_t there, t.execute());
    if (available != nullptr) *available = there;
    return {};
  });
}

stemma_status stemma_turn_computed(stemma_turn turn, uint32_t n, uint64_t spent_ns) {
  return with_turn(__func__, turn, [&](Turn& t) { return t.computed(n, spent_ns); });
}

stemma_status stemma_turn_extend(stemma_turn turn, const uint32_t* tokens, size_t count) {
  return with_turn(__func__, turn, [&](Turn& t) -> Result<void> {
    if (tokens == nullptr && count != 0) return invalid("tokens is null, and count is not 0");
    if (count >= STEMMA_TOKEN_LIMIT) {
      return Error(Errc::out_of_range, "count is more than 2^31 - 1");
    }
    return t.extend({tokens, count});
  });
}

stemma_status stemma_turn_reserve(stemma_turn turn, uint32_t tokens) {
  return with_turn(__func__, turn, [&](Turn& t) { return t.reserve(tokens); });
}

stemma_status stemma_turn_rewind(stemma_turn turn, uint32_t n) {
  return with_turn(__func__, turn, [&](Turn& t) { return t.rewind(n); });
}

stemma_status stemma_turn_attach_logits(stemma_turn turn, uint32_t depth, const float* logits,
                                        size_t count) {
  return with_turn(__func__, turn, [&](Turn& t) -> Result<void> {
    if (logits == nullptr && count != 0) return invalid("logits is null, and count is not 0");
    if (count >= STEMMA_TOKEN_LIMIT) {
      return Error(Errc::out_of_range, "count is more than 2^31 - 1");
    }
    return t.attach_logits(depth, {logits, count});
  });
}

stemma_status stemma_turn_fork(stemma_turn turn, const stemma_turn_options* options,
                               stemma_turn* out) {
  return with_held(__func__, turn, [&](HeldTurn& held) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    TurnOptions decoded;
    STEMMA_TRY_VOID(decode(options, decoded));
    Result<Turn> fork = held.turn.fork(decoded);
    return hand_out(fork, *held.home, *out);
  });
}

stemma_status stemma_turn_shift(stemma_turn turn, uint32_t keep, uint32_t discard) {
  return with_turn(__func__, turn, [&](Turn& t) { return t.shift(keep, discard); });
}

stemma_status stemma_turn_finish(stemma_turn turn, const stemma_retain* retain) {
  return end_turn(__func__, turn, [&](Turn& t) -> Result<void> {
    if (retain == nullptr) return t.finish();
    Retain decoded;
    STEMMA_TRY_VOID(decode(retain, decoded));
    return t.finish(&decoded);
  });
}

stemma_status stemma_turn_abandon(stemma_turn turn) {
  return end_turn(__func__, turn, [](Turn& t) { return t.abandon(); });
}
