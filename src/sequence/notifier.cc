#include "sequence/notifier.h"

#include <algorithm>
#include <array>
#include <new>
#include <vector>

namespace stemma::sequence {

namespace {

// Bytes that were taken. They are looked at only if somebody wants them; what is not what was saved
// is nobody's.
template <class Read>
uint64_t offer(SavedListener& listener, EntryKind kind, const PartLabel& label, SeenAgain seen,
               Read&& read) {
  const uint32_t wanted = listener.wants(kind, label.chain, seen);
  if (wanted == 0) return 0;
  const Result<std::span<const uint8_t>> bytes = read();
  if (!bytes) return 0;
  listener.take({kind, label.range, *bytes, label.chain, label.priority, label.words, label.parent},
                wanted);
  return bytes->size();
}

}  // namespace

PartLabel Notifier::label_of(key::KeyChain& chain, const Text& text, Range range,
                             Priority priority) const noexcept {
  PartLabel label{chain.at(range.end), range, priority, link_of(chain.parent_of(range.end))};
  if (!books_.options.listener->keeps_words() || !text.spans.empty()) return label;
  try {
    const auto words = text.all().subspan(range.begin, range.end - range.begin);
    label.words.assign(words.begin(), words.end());
  } catch (const std::bad_alloc&) {
    // It is handed on without.
  }
  return label;
}

// ---- What was saved ----------------------------------------------------------------------------

void Notifier::tell(uint32_t sequence, const SavedPart& part, const ContentKey& chain) {
  books_.options.listener->saved(books_.scope_of(sequence), books_.text_of(sequence).prompt(), part,
                                 chain, books_.retain_of(sequence).get());
}

void Notifier::tell_of_state(uint32_t sequence, StateStore& store, Part part, uint32_t depth) {
  // Held while its bytes are looked at.
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
  const PartLabel label = label_of(chain, text, range, books_.retain_of(sequence).retain.priority);
  tell(sequence, {EntryKind::segment, range, saved, label.parent}, label.chain);
  offer(*books_.options.listener, EntryKind::segment, label, SeenAgain::leaving,
        [&] { return Result<std::span<const uint8_t>>(saved); });
} catch (const std::bad_alloc&) {
  // Whoever is elsewhere computes that far.
}

// ---- What was saved earlier --------------------------------------------------------------------

uint64_t Notifier::hand_on(uint32_t slot, SeenAgain seen) {
  const PartLabel& label = books_.segments->label(slot);
  if (!label) return 0;
  const Books::Unlocked unlocked(books_);
  return offer(*books_.options.listener, EntryKind::segment, label, seen,
               [&] { return books_.segments->read(slot); });
}

uint64_t Notifier::hand_on(EntryKind kind, const StateLease& lease, const PartLabel& label,
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
  // Only this thread evicts, so nothing is added meanwhile.
  for (const BlockId block : books_.segments->evicted())
    hand_on(to_index(block), SeenAgain::leaving);
  books_.segments->forget_evicted();
}

void Notifier::make_way(StateStore& store, EntryKind kind, const Scope& scope, uint32_t depth,
                        uint64_t bytes) try {
  if (!books_.heard()) return;
  for (;;) {
    const StateStore::Leaving leaving = store.evict_for(scope, depth, bytes);
    if (!leaving.lease) return;
    hand_on(kind, leaving.lease, leaving.label, SeenAgain::leaving);
  }
} catch (const std::bad_alloc&) {
  // Then reserve() makes the room, and nobody hears of what goes.
}

HandedOn Notifier::hand_on_all(uint64_t from, uint64_t bytes) {
  HandedOn done;
  if (!books_.heard()) return done;
  tell_of_evicted();
  const std::array<StateStore*, 2> stores{books_.states.get(), books_.checkpoints.get()};
  // `next` has the store in its upper half: segments, states, checkpoints; what lies in it in the
  // lower.
  uint64_t place = from >> 32U;
  auto at = static_cast<uint32_t>(from);
  for (; place <= stores.size(); ++place, at = 0) {
    StateStore* const store = place == 0 ? nullptr : stores[place - 1];
    const uint32_t end = store != nullptr                           ? store->entries()
                         : place == 0 && books_.segments != nullptr ? books_.segments->labels()
                                                                    : 0;
    for (; at < end; ++at) {
      const StateLease lease = store != nullptr ? store->lease_entry(at) : StateLease();
      if (store != nullptr ? !lease : !books_.segments->holds(at)) continue;
      const uint64_t size = store != nullptr ? lease.bytes() : books_.segments->size(at);
      if (done.bytes != 0 && (done.bytes > bytes || size > bytes - done.bytes)) {
        done.next = place << 32U | at;
        done.over = false;
        return done;
      }
      const EntryKind kind = place == 1 ? EntryKind::state : EntryKind::checkpoint;
      const uint64_t taken = store == nullptr
                                 ? hand_on(at, SeenAgain::leaving)
                                 : hand_on(kind, lease, store->label(lease), SeenAgain::leaving);
      done.bytes += taken;
      done.parts += taken != 0 ? 1 : 0;
    }
  }
  return done;
}

}  // namespace stemma::sequence
