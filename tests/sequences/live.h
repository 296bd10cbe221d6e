// What a schedule believes about one turn: the whole model. The words it was given, how many of them the
// cache has said are there, and what it was promised.
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
  uint32_t scope_salt = 0;   // What the engine makes of its scope.
  Text text;                 // What the turn was given, [0, length).
  std::vector<Token> words;  // The same, as the engine computes it.

  // Of the prompt, as it was begun.
  Text prompt;
  std::vector<Token> prompt_words;
  TurnOptions options;  // Without what is borrowed.
  SequenceReport plan;
  bool forked = false;
  bool unique = false;        // Nobody else's words begin like these.
  uint32_t room_before = 0;   // Positions in its sequence when it began, and
  uint32_t held_before = 0;   // words known to be there.
  uint64_t saved_before = 0;  // Bytes that had been saved when it began.

  bool executed = false;
  bool failed = false;   // It can only end.
  bool stale = false;    // Its sequence was taken away.
  bool dirty = false;    // A forward pass failed: the sequence may hold more than the cache knows.
  bool dropped = false;  // Its scope was.
  // After a shift at this position: what is there from it on, or a recurrent state that has come by it,
  // matches no text.
  uint32_t exact = kAll;
  bool shifted = false;   // Ever.
  uint32_t promised = 0;  // Positions that there is room for, as the cache said,
  uint32_t granted = 0;   // and the most that it ever said: it need not take that back.

  // Positions that are as the words say, in the sequence, now.
  uint32_t there() const { return turn.computed(); }
  bool approximate() const { return exact <= there(); }
  // A sequence that ops may change and that is worth looking at.
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
