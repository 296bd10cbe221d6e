// SessionCloser: ends conversations, now or with their last turn.
//
// Invariant:  a session that has turns under way is not forgotten.
// Threading:  one thread at a time; the caller holds the books' lock.
// Ownership:  the books outlive it.
// Cost:       O(sequences + saved states) to close a session; nothing allocates.
#pragma once

#include <cstdint>
#include <string_view>

#include "sequence/books.h"

namespace stemma::sequence {

class SessionCloser {
 public:
  explicit SessionCloser(Books& books) noexcept : books_(books) {}

  // The conversation is over, now or when its turns under way end. An unknown name is not an error.
  void end_session(std::string_view name) noexcept;
  // Takes the turn out of its session, which may end with it. Does nothing for a turn without a
  // session.
  void leave_session(TurnRecord& turn) noexcept;

 private:
  // Its sequence is the next to go, and what it saved goes early. Requires that no turn of it is
  // under way.
  void close(uint32_t session) noexcept;

  Books& books_;
};

}  // namespace stemma::sequence
