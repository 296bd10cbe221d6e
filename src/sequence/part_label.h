// PartLabel: the name of a saved part outside of this process. With it the part can be handed on
// when it is used again or leaves, without the prompt that it was saved for.
//
// Threading:  a plain value.
// Cost:       88 bytes, and the words if they are kept.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/retention.h"
#include "stemma/sequence_engine.h"

namespace stemma::sequence {

// The moments of one use of a prompt, from Notifier::moments(). Each part of the prompt gets one,
// from the latest to the earliest: parts are reported from the beginning of the prompt on, so a
// deeper part gets an earlier moment. No two uses share a moment, even if their parts are reported
// alternately.
struct UseMoments {
  uint64_t next = 0;  // The next moment to give out, plus one.
  uint32_t left = 0;
};

struct PartLabel {
  ContentKey chain{};  // Of all words up to range.end.
  Range range;
  Priority priority = kDefaultPriority;
  uint64_t parent = 0;  // As in SavedPart.
  // The part's value: by how often it was used, then by when (see Notifier). 0: no rank.
  uint64_t rank = 0;
  std::vector<uint32_t> words = {};  // Of the range, if the listener keeps words.

  // Whether there is a label. A part without one is never offered again.
  explicit operator bool() const noexcept { return range.end != 0; }
};

}  // namespace stemma::sequence
