// PartIntake: takes in parts that were saved elsewhere, and reports what is saved here.
//
// Invariant:  a part is found under the words it was brought for; one that does not fit, or has a
//             gap before it, is refused and counted.
// Threading:  admit() on the engine's thread. Every function but saved_tokens() requires that the
//             caller holds the books' lock; admit() releases it while bytes are copied.
// Ownership:  bytes are copied. The books and the notifier outlive it.
// Cost:       O(parts), and a copy of each part that is taken.
#pragma once

#include <cstdint>
#include <span>

#include "key/key_chain.h"
#include "sequence/books.h"
#include "sequence/notifier.h"

namespace stemma::sequence {

class PartIntake {
 public:
  PartIntake(Books& books, Notifier& notifier) noexcept : books_(books), notifier_(notifier) {}

  // Each does what the function of the same name of SequenceCache says.
  Result<Admitted> admit(const Scope& scope, const Prompt& prompt, std::span<const SavedPart> parts,
                         const TurnOptions& options);
  // Any thread, without the lock.
  uint32_t saved_tokens(const Scope& scope, const Prompt& prompt) const;
  uint32_t saved_checkpoints(const Scope& scope, const Prompt& prompt, std::span<uint32_t> out);

 private:
  // The words of the parts, and how the parts are kept. `chain` is null without a listener.
  struct Source {
    const Scope& scope;
    const Text& text;
    const TurnOptions& options;
    key::KeyChain* chain;
    UseMoments& segments;  // The moments of use for segments.
    UseMoments& anchors;   // Earlier ones, for states and checkpoints: they need the segments.
  };
  void admit_segments(const Source& source, std::span<const SavedPart> parts, Admitted& admitted);
  void admit_state(const Source& source, const SavedPart& part, Admitted& admitted);

  Books& books_;
  Notifier& notifier_;
};

}  // namespace stemma::sequence
