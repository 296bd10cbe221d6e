// A schedule's model of one turn: the words it was given, how many of them the cache has reported
// available, and the room it was promised.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sequences/words.h"
#include "stemma/sequence.h"

namespace stemma::schedules {

struct Live {
  static constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();

  uint32_t number = 0;  // For the log.
  Turn turn;
  uint32_t scope = 0;
  uint64_t conversation = 0;
  std::string session;
  uint32_t scope_salt = 0;   // Made from its scope; part of the engine's words.
  Text text;                 // The turn's words, [0, length).
  std::vector<Token> words;  // The same, as the engine computes it.

  // The prompt at begin().
  Text prompt;
  std::vector<Token> prompt_words;
  TurnOptions options;  // Without borrowed pointers.
  SequenceReport plan;
  bool forked = false;
  bool unique = false;        // No other turn's words begin like these.
  uint32_t room_before = 0;   // Positions in its sequence when it began, and
  uint32_t held_before = 0;   // words known to be there.
  uint64_t saved_before = 0;  // Bytes that had been saved when it began.

  bool executed = false;
  bool failed = false;   // The turn can only end.
  bool stale = false;    // Its sequence was taken away.
  bool dirty = false;    // A forward pass failed: the sequence may hold more than the cache knows.
  bool dropped = false;  // Its scope was.
  // After a shift at this position: what is there from it on, or a recurrent state that has come by
  // it, matches no text.
  uint32_t exact = kAll;
  bool shifted = false;   // Ever.
  uint32_t promised = 0;  // Positions for which the cache promised room,
  uint32_t granted = 0;   // and the most it ever promised, which it need not take back.

  // Positions that are as the words say, in the sequence, now.
  uint32_t there() const { return turn.computed(); }
  bool approximate() const { return exact <= there(); }
  // A sequence that operations may change and that is worth checking.
  bool usable() const { return executed && !failed && !stale && !dirty; }

  void promise(uint32_t positions) {
    promised = std::max(promised, positions);
    granted = std::max(granted, positions);
  }
  void cut(uint32_t n) {
    text = text.first(n);
    words.resize(n);
    if (n < exact) exact = kAll;
  }
};

}  // namespace stemma::schedules
