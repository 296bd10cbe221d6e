#include "sequence/session_closer.h"

#include <utility>

namespace stemma::sequence {

void SessionCloser::end_session(std::string_view name) noexcept {
  const uint32_t session = books_.sessions.find(name);
  if (session == SessionTable::kNone) return;
  books_.sessions[session].over = true;
  if (books_.sessions[session].in_flight == 0) close(session);
}

void SessionCloser::leave_session(TurnRecord& turn) noexcept {
  const uint32_t session = std::exchange(turn.session, SessionTable::kNone);
  if (session == SessionTable::kNone || --books_.sessions[session].in_flight != 0) return;
  if (books_.sessions[session].over) close(session);
}

void SessionCloser::close(uint32_t session) noexcept {
  if (books_.segments != nullptr) books_.segments->end_session(books_.sessions[session].id);
  for (StateStore* store : {books_.states.get(), books_.checkpoints.get(), books_.logits.get()}) {
    if (store != nullptr) store->end_session(books_.sessions[session].id);
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.at(s).session != books_.sessions[session].id) continue;
    books_.at(s).session = kNoSession;
    books_.at(s).retain.retain.phase = SessionPhase::ended;  // For what is not saved yet.
    if (books_.at(s).state != SequenceState::idle || books_.idle_order.front(0) == s) continue;
    books_.idle_order.unlink(s);
    books_.idle_order.insert_before(books_.idle_order.front(0), s);
  }
  books_.sessions.forget(session);
  books_.changed();
}

}  // namespace stemma::sequence
