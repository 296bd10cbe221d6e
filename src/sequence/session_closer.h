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

  // The conversation is over, now or when its turns under way end. A name that is not known is no
  // error.
  void end_session(std::string_view name) noexcept;
  // The turn is no longer one of its session, which may be over with it. A turn without one is left
  // alone.
  void leave_session(TurnRecord& turn) noexcept;

 private:
  // Its sequence is the next to go, and what it saved goes early. Requires that no turn of it is
  // under way.
  void close(uint32_t session) noexcept;

  Books& books_;
};

}  // namespace stemma::sequence
