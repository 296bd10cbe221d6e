// PartLabel: what something saved is called outside of this process, so that it can be handed on when it is
// used again or goes, without the prompt that it was saved for.
//
// Threading:  a plain value.
// Cost:       88 bytes, and the words where somebody keeps them.
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/key.h"
#include "stemma/retention.h"
#include "stemma/sequence_engine.h"

namespace stemma::sequence {

struct PartLabel {
  ContentKey chain{};  // Of all words up to range.end.
  Range range;
  Priority priority = kDefaultPriority;
  uint64_t parent = 0;  // As SavedPart has it.
  // How much it is worth: by how often it was used, then by when. 0: it has none. Notifier.
  uint64_t rank = 0;
  std::vector<uint32_t> words = {};  // Of the range; only if somebody keeps them.

  // Without one nobody hears of it again.
  explicit operator bool() const noexcept { return range.end != 0; }
};

}  // namespace stemma::sequence
