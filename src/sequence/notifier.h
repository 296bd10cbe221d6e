// Notifier: tells the listener (SavedListener) what was saved, and what is used again or goes.
//
// The listener keeps such parts elsewhere. It hears of a part when it is saved; later it is offered
// the part again when somebody uses it, when it is evicted, and when the owner asks for everything.
//
// Invariant:  bytes that are handed on are exactly those that were saved.
// Threading:  one thread at a time, that of the engine, which holds the books' lock unless a
//             function says otherwise; the lock is let go while the listener is called.
// Ownership:  the books outlive it; the listener outlives the books.
// Cost:       without a listener nothing. With one, a call for each part; bytes are read only if
//             the listener wants them.
#pragma once

#include <cstdint>

#include "key/key_chain.h"
#include "sequence/books.h"
#include "sequence/part_label.h"

namespace stemma::sequence {

class Notifier {
 public:
  explicit Notifier(Books& books) noexcept : books_(books) {}

  // The name of a part. It has no words where there is no memory for them. Requires a listener.
  // With or without the lock.
  PartLabel label_of(key::KeyChain& chain, const Text& text, Range range,
                     Priority priority) const noexcept;

  // ---- What was saved. Each of these requires a listener. ---------------------------------------

  // A part of a sequence was saved. Without the lock.
  void tell(uint32_t sequence, const SavedPart& part, const ContentKey& chain);
  void tell_of_state(uint32_t sequence, StateStore& store, Part part, uint32_t depth);
  // Reads the last segment under a checkpoint, which ends inside it, and hands it on at once.
  // Others find a checkpoint by the words it ends with, so they need what lies under it by the same
  // words; here it is the first part of a longer segment.
  void tell_of_tail(uint32_t sequence, uint32_t depth);

  // ---- What was saved earlier -------------------------------------------------------------------

  // Offers a segment, or a state, checkpoint or logits. Returns the bytes that were taken.
  uint64_t hand_on(uint32_t slot, SeenAgain seen);
  uint64_t hand_on(EntryKind kind, const StateLease& lease, const PartLabel& label, SeenAgain seen);
  // Offers the segments that were evicted, before their slots are needed.
  void tell_of_evicted();
  // Evicts from a store as reserve() would, and offers what goes.
  void make_way(StateStore& store, EntryKind kind, const Scope& scope, uint32_t depth,
                uint64_t bytes);
  // Offers everything that is saved, from the place where the last call ended.
  HandedOn hand_on_all(uint64_t from, uint64_t bytes);

 private:
  Books& books_;
};

}  // namespace stemma::sequence
