// Notifier: tells the listener (SavedListener) what was saved, and what is used again or leaves.
//
// The listener keeps such parts elsewhere. It is told of a part when the part is saved. Later the
// part is offered again when it is used, when it is evicted, and when the owner asks for all parts.
//
// Each part has a rank, which grows with its uses. Everything is handed on in the order of rank,
// the most used part at the end, because a tier with less room than this memory keeps what comes
// last. Among equally used parts, the one used later ranks higher. Each use of a prompt gets
// moments of its own (UseMoments), because the parts of other prompts may be reported in between.
//
// Invariant:  bytes that are handed on are exactly those that were saved. No two parts have the
//             same rank; of two parts of one prompt that were used equally often, the shallower one
//             has the higher rank, because the deeper one is of no use without it.
// Threading:  one thread at a time, the engine's. It holds the books' lock unless a function says
//             otherwise, and releases it while the listener is called.
// Ownership:  the books outlive it; the listener outlives the books.
// Cost:       nothing without a listener. With one, a call for each part; bytes are read only if
//             the listener wants them. hand_on_all() looks at every label once for each 256 parts
//             that it offers, and allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "key/key_chain.h"
#include "sequence/books.h"
#include "sequence/part_label.h"

namespace stemma::sequence {

class Notifier {
 public:
  explicit Notifier(Books& books) noexcept : books_(books) {}

  // The moments of a use that begins now, of a prompt with at most this many parts.
  UseMoments moments(uint32_t parts) noexcept;
  // The label of a part that is saved now. It has no words if there is no memory for them.
  // Requires a listener. With or without the lock.
  PartLabel label_of(key::KeyChain& chain, const Text& text, Range range, Priority priority,
                     UseMoments& use) noexcept;

  // ---- What was saved. Each of these requires a listener. ---------------------------------------

  // A part of a sequence was saved. Without the lock.
  void tell(uint32_t sequence, const SavedPart& part, const ContentKey& chain);
  void tell_of_state(uint32_t sequence, StateStore& store, Part part, uint32_t depth);
  // For a checkpoint that ends inside a segment: reads that segment up to the checkpoint, and hands
  // it on at once. Others find a checkpoint by the words up to its end, so they need a segment with
  // exactly these words; here they are only the first part of a longer one.
  void tell_of_tail(uint32_t sequence, uint32_t depth);

  // ---- What was saved earlier -------------------------------------------------------------------

  // A segment is used. Its rank grows; nothing is offered.
  void mark_used(uint32_t slot, UseMoments& use) noexcept;
  // Offers a segment, or a store's state or checkpoint, that is used again. Its rank grows.
  void hand_on_used(uint32_t slot, UseMoments& use);
  void hand_on_used(StateStore& store, EntryKind kind, const StateLease& lease);
  // Offers the segments that were evicted, before their slots are needed.
  void tell_of_evicted();
  // Evicts from a store as reserve() would, and offers what is evicted.
  void make_way(StateStore& store, EntryKind kind, const Scope& scope, uint32_t depth,
                uint64_t bytes);
  // Offers everything that is saved, in the order of rank, from the place where the last call
  // ended.
  HandedOn hand_on_all(uint64_t from, uint64_t bytes);
  // The lowest place from which hand_on_all() offers no more than this many bytes.
  uint64_t hand_on_from(uint64_t bytes) const;

 private:
  // Something saved: where it lies and what it is worth.
  struct Ranked {
    uint64_t rank = 0;
    EntryKind kind = EntryKind::segment;
    uint32_t at = 0;  // The slot of a segment, or the entry of a store.
  };

  // The rank of a part that had this rank before (0: none) and is used now.
  uint64_t next_rank(uint64_t before, UseMoments& use) noexcept;
  // Calls visit(rank, kind, at) for everything that is saved and has a label.
  template <class Visit>
  void each_ranked(Visit&& visit) const;
  // Fills `out` with the parts of the lowest ranks that are `from` or more, ascending. Returns how
  // many there are.
  size_t lowest(uint64_t from, std::span<Ranked> out) const;
  StateStore* store_of(EntryKind kind) const noexcept;
  // Each offers one part, and returns the bytes that were taken.
  uint64_t offer_segment(uint32_t slot, SeenAgain seen);
  uint64_t offer_state(EntryKind kind, const StateLease& lease, const PartLabel& label,
                       SeenAgain seen);

  Books& books_;
  uint64_t moment_ = 0;  // The last moment that was given to a use.
};

}  // namespace stemma::sequence
