#include "sequence/notifier.h"

#include <algorithm>
#include <array>
#include <new>
#include <vector>

namespace stemma::sequence {

namespace {

// The upper bits of a rank say how often a part was used, the lower ones when it was last used.
constexpr uint32_t kMomentBits = 48;
constexpr uint64_t kMostUses = (uint64_t{1} << (64 - kMomentBits)) - 1;
constexpr uint64_t kMomentMask = (uint64_t{1} << kMomentBits) - 1;

// Offers bytes to the listener. They are read only if the listener wants them, and bytes that are
// not the saved ones are not offered.
template <class Read>
uint64_t offer(SavedListener& listener, EntryKind kind, const PartLabel& label, SeenAgain seen,
               Read&& read) {
  const uint32_t wanted = listener.wants(kind, label.chain, seen);
  if (wanted == 0) return 0;
  const Result<std::span<const uint8_t>> bytes = read();
  if (!bytes) return 0;
  const bool kept = listener.take(
      {kind, label.range, *bytes, label.chain, label.priority, label.words, label.parent}, wanted);
  return kept ? bytes->size() : 0;
}

}  // namespace

UseMoments Notifier::moments(uint32_t parts) noexcept {
  moment_ += parts;
  return {moment_ + 1, parts};
}

PartLabel Notifier::label_of(key::KeyChain& chain, const Text& text, Range range, Priority priority,
                             UseMoments& use) noexcept {
  PartLabel label{chain.at(range.end), range, priority, link_of(chain.parent_of(range.end)),
                  next_rank(0, use)};
  if (!books_.options.listener->keeps_words() || !text.spans.empty()) return label;
  try {
    const auto words = text.all().subspan(range.begin, range.end - range.begin);
    label.words.assign(words.begin(), words.end());
  } catch (const std::bad_alloc&) {
    // The label goes out without words.
  }
  return label;
}

// ---- What was saved ----------------------------------------------------------------------------

void Notifier::tell(uint32_t sequence, const SavedPart& part, const ContentKey& chain) {
  books_.options.listener->saved(books_.scope_of(sequence), books_.text_of(sequence).prompt(), part,
                                 chain, books_.retain_of(sequence).get());
}

void Notifier::tell_of_state(uint32_t sequence, StateStore& store, Part part, uint32_t depth) {
  // The lease holds the entry while its bytes are read.
  const Result<StateLease> lease =
      store.lease(store.find(books_.scope_of(sequence), books_.text_of(sequence), depth).exact);
  if (!lease || lease->depth() != depth) return;
  const ContentKey chain = store.label(*lease).chain;
  const uint64_t parent = store.label(*lease).parent;
  const Books::Unlocked unlocked(books_);
  const Result<SavedState> saved = lease->read();
  if (!saved) return;
  tell(sequence,
       {part == Part::state ? EntryKind::state : EntryKind::checkpoint,
        {0, depth},
        saved->state,
        parent},
       chain);
}

void Notifier::tell_of_tail(uint32_t sequence, uint32_t depth) try {
  const uint32_t begin = depth / books_.options.segment_tokens * books_.options.segment_tokens;
  if (begin == depth) return;
  const Text& text = books_.text_of(sequence);
  key::KeyChain chain(books_.scope_of(sequence), text.all(), text.spans,
                      books_.options.segment_tokens);
  const Books::Unlocked unlocked(books_);
  const Range range{begin, depth};
  const Result<uint64_t> size = books_.engine->size(SequenceId{sequence}, Part::segment, range);
  if (!size || *size == 0) return;
  std::vector<uint8_t> bytes(*size);
  const Result<uint64_t> written =
      books_.engine->save(SequenceId{sequence}, Part::segment, range, bytes);
  if (!written || *written == 0 || *written > bytes.size()) return;
  const std::span<const uint8_t> saved = std::span(bytes).first(*written);
  UseMoments use = moments(1);
  const Priority priority = books_.retain_of(sequence).retain.priority;
  const PartLabel label = label_of(chain, text, range, priority, use);
  tell(sequence, {EntryKind::segment, range, saved, label.parent}, label.chain);
  offer(*books_.options.listener, EntryKind::segment, label, SeenAgain::leaving,
        [&] { return Result<std::span<const uint8_t>>(saved); });
} catch (const std::bad_alloc&) {
  // Nothing is offered: other processes compute this part themselves.
}

// ---- What was saved earlier --------------------------------------------------------------------

uint64_t Notifier::next_rank(uint64_t before, UseMoments& use) noexcept {
  // Ranks stay distinct even if a prompt has more parts than its use has moments.
  if (use.left == 0) use = moments(1);
  --use.left;
  --use.next;
  const uint64_t uses = std::min((before >> kMomentBits) + 1, kMostUses);
  return uses << kMomentBits | (use.next & kMomentMask);
}

void Notifier::mark_used(uint32_t slot, UseMoments& use) noexcept {
  const PartLabel& label = books_.segments->label(slot);
  if (label) books_.segments->set_rank(slot, next_rank(label.rank, use));
}

void Notifier::hand_on_used(uint32_t slot, UseMoments& use) {
  mark_used(slot, use);
  (void)offer_segment(slot, SeenAgain::used);
}

void Notifier::hand_on_used(StateStore& store, EntryKind kind, const StateLease& lease) {
  const PartLabel& label = store.label(lease);
  UseMoments use;
  if (label) store.set_rank(lease, next_rank(label.rank, use));
  (void)offer_state(kind, lease, label, SeenAgain::used);
}

uint64_t Notifier::offer_segment(uint32_t slot, SeenAgain seen) {
  const PartLabel& label = books_.segments->label(slot);
  if (!label) return 0;
  const Books::Unlocked unlocked(books_);
  return offer(*books_.options.listener, EntryKind::segment, label, seen,
               [&] { return books_.segments->read(slot); });
}

uint64_t Notifier::offer_state(EntryKind kind, const StateLease& lease, const PartLabel& label,
                               SeenAgain seen) {
  if (!books_.heard() || !label) return 0;
  const Books::Unlocked unlocked(books_);
  return offer(*books_.options.listener, kind, label, seen,
               [&]() -> Result<std::span<const uint8_t>> {
                 STEMMA_TRY(const SavedState saved, lease.read());
                 return saved.state;
               });
}

void Notifier::tell_of_evicted() {
  if (!books_.heard() || books_.segments == nullptr) return;
  // Only this thread evicts, so nothing is added during this loop.
  for (const BlockId block : books_.segments->evicted())
    (void)offer_segment(to_index(block), SeenAgain::leaving);
  books_.segments->forget_evicted();
}

void Notifier::make_way(StateStore& store, EntryKind kind, const Scope& scope, uint32_t depth,
                        uint64_t bytes) try {
  if (!books_.heard()) return;
  for (;;) {
    const StateStore::Leaving leaving = store.evict_for(scope, depth, bytes);
    if (!leaving.lease) return;
    offer_state(kind, leaving.lease, leaving.label, SeenAgain::leaving);
  }
} catch (const std::bad_alloc&) {
  // Then reserve() makes the room, and the listener does not hear of what is evicted.
}

StateStore* Notifier::store_of(EntryKind kind) const noexcept {
  return kind == EntryKind::state        ? books_.states.get()
         : kind == EntryKind::checkpoint ? books_.checkpoints.get()
                                         : nullptr;
}

template <class Visit>
void Notifier::each_ranked(Visit&& visit) const {
  const uint32_t slots = books_.segments == nullptr ? 0 : books_.segments->labels();
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const uint64_t rank = books_.segments->label(slot).rank;
    if (rank != 0 && books_.segments->holds(slot)) visit(rank, EntryKind::segment, slot);
  }
  for (const EntryKind kind : {EntryKind::state, EntryKind::checkpoint}) {
    const StateStore* const store = store_of(kind);
    const uint32_t entries = store == nullptr ? 0 : store->entries();
    for (uint32_t entry = 0; entry < entries; ++entry) {
      if (const uint64_t rank = store->rank(entry); rank != 0) visit(rank, kind, entry);
    }
  }
}

size_t Notifier::lowest(uint64_t from, std::span<Ranked> out) const {
  size_t count = 0;
  each_ranked([&](uint64_t rank, EntryKind kind, uint32_t at) {
    if (rank < from) return;
    if (count < out.size()) {
      out[count++] = {rank, kind, at};
    } else if (rank < out.front().rank) {
      std::ranges::pop_heap(out, {}, &Ranked::rank);
      out.back() = {rank, kind, at};
    } else {
      return;
    }
    std::ranges::push_heap(out.first(count), {}, &Ranked::rank);
  });
  std::ranges::sort_heap(out.first(count), {}, &Ranked::rank);
  return count;
}

uint64_t Notifier::hand_on_from(uint64_t bytes) const {
  if (!books_.heard()) return 0;
  // Finds the highest rank that no longer fits, eight bits at a time from the top.
  uint64_t first_bits = 0;
  for (uint32_t shift = 64; shift != 0;) {
    shift -= 8;
    std::array<uint64_t, 256> sums{};  // By the next eight bits.
    each_ranked([&](uint64_t rank, EntryKind kind, uint32_t at) {
      if (shift < 56 && rank >> (shift + 8) != first_bits) return;
      sums[rank >> shift & 255U] +=
          kind == EntryKind::segment ? books_.segments->size(at) : store_of(kind)->bytes(at);
    });
    uint32_t bits = 255;
    for (; bits != 0 && sums[bits] <= bytes; --bits) bytes -= sums[bits];
    first_bits = first_bits << 8U | bits;
  }
  return first_bits + 1;
}

HandedOn Notifier::hand_on_all(uint64_t from, uint64_t bytes) {
  HandedOn done;
  if (!books_.heard()) return done;
  tell_of_evicted();
  std::array<Ranked, 256> some;
  for (;;) {
    const size_t count = lowest(from, some);
    if (count == 0) return done;
    for (const Ranked& part : std::span(some).first(count)) {
      StateStore* const store = store_of(part.kind);
      const StateLease lease = store == nullptr ? StateLease() : store->lease_entry(part.at);
      if (store != nullptr && !lease) continue;
      const uint64_t size = store == nullptr ? books_.segments->size(part.at) : lease.bytes();
      if (done.bytes != 0 && (done.bytes > bytes || size > bytes - done.bytes)) {
        done.next = part.rank;
        done.over = false;
        return done;
      }
      const uint64_t taken =
          store == nullptr ? offer_segment(part.at, SeenAgain::leaving)
                           : offer_state(part.kind, lease, store->label(lease), SeenAgain::leaving);
      done.bytes += taken;
      done.parts += taken != 0 ? 1 : 0;
    }
    from = some[count - 1].rank + 1;
  }
}

}  // namespace stemma::sequence
