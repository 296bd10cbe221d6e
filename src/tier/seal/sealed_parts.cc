// How one part of a batch is carried out.
#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "tier/entry.h"
#include "tier/seal/scope_key.h"
#include "tier/seal/sealed_core.h"
#include "tier/seal/sealed_entry.h"
#include "tier/wait_until.h"

namespace stemma::tier::seal {

// Takes what a small put is sealed with outside the threads. Null: a thread seals it.
std::unique_ptr<Cipher> SealedCore::take_spare(const Part& part) {
  if (part.work->parts != 1 || part.staged_bytes > options_.at_once_bytes) return nullptr;
  const base::Lock lock(mutex_);
  return std::move(spare_);
}

void SealedCore::give_back(std::unique_ptr<Cipher> spare) {
  const base::Lock lock(mutex_);
  spare_ = std::move(spare);
}

// Nothing is taken while others of its kind wait for memory.
bool SealedCore::take_memory_at_once(Part& part, TierOp op) {
  if (op != TierOp::put && op != TierOp::get) return true;
  const auto which = static_cast<size_t>(op == TierOp::put ? Queue::puts : Queue::gets);
  const base::Lock lock(mutex_);
  if (!queues_[which].empty()) return false;
  part.memory = staging_[which].take(part.staged_bytes);
  return static_cast<bool>(part.memory);
}

// Begins a part inside submit(). False: it has to queue, because a file has to be read, there is no
// memory, or sealing would take long.
bool SealedCore::try_at_once(const PartPtr& part) {
  const TierOp op = part->work->outer->op();
  std::unique_ptr<Cipher> spare;
  if (op == TierOp::put && (spare = take_spare(*part)) == nullptr) return false;
  if (!enter()) {
    if (spare != nullptr) give_back(std::move(spare));
    give_up(part, TierOutcome::cancelled);
    return true;
  }
  bool ready = take_memory_at_once(*part, op);
  if (ready && part->work->outer->verdict(monotonic_ns()) == TierOutcome::pending) {
    ready = find_keys(*part, /*only_held=*/true);
    if (ready && spare != nullptr) seal_slots(*part, *spare);
  }
  if (spare != nullptr) give_back(std::move(spare));
  if (ready) {
    hand_over(part);
  } else {
    part->memory = {};
  }
  leave();
  return ready;
}

void SealedCore::begin(const PartPtr& part, Cipher& cipher) {
  const TierOp op = part->work->outer->op();
  const bool moves = op == TierOp::put || op == TierOp::get;
  if (moves && !part->memory) return give_up(part, TierOutcome::failed);
  if (part->work->outer->verdict(monotonic_ns()) == TierOutcome::pending) {
    try {
      find_keys(*part, /*only_held=*/false);
    } catch (const std::bad_alloc&) {
      return give_up(part, TierOutcome::failed);
    }
    if (op == TierOp::put) seal_slots(*part, cipher);
  }
  hand_over(part);
}

// Finds the key of each item, or the outcome of an item without one. Returns false if only keys in
// memory were allowed and one was not there.
bool SealedCore::find_keys(Part& part, bool only_held) {
  TierBatch& outer = *part.work->outer;
  const bool puts = outer.op() == TierOp::put;
  const Slot* last = nullptr;
  for (Slot& slot : part.slots) {
    const TierItem& item = outer.items()[slot.item];
    if (puts && check_put(item, traits_) != TierOutcome::pending) {
      slot.outcome = TierOutcome::refused;
      continue;
    }
    const uint64_t owner = owner_of(item.key);
    if (last != nullptr && owner_of(outer.items()[last->item].key) == owner) {
      slot.key = last->key;
      slot.outcome = last->outcome;
      continue;
    }
    if (only_held) {
      slot.key = options_.keys->held(owner);
      if (slot.key == nullptr) return false;
    } else {
      Result<KeyRing::Key> key = puts ? options_.keys->make(owner) : options_.keys->find(owner);
      if (key) slot.key = *std::move(key);
      if (slot.key == nullptr) slot.outcome = key ? TierOutcome::absent : TierOutcome::failed;
    }
    last = &slot;
  }
  return true;
}

void SealedCore::seal_slots(Part& part, Cipher& cipher) {
  // Several at a time: a system call costs more than the bytes.
  std::array<Nonce, 32> nonces;
  size_t left = 0;
  for (Slot& slot : part.slots) {
    if (slot.outcome != TierOutcome::pending) continue;
    if (left == 0) {
      const std::span<Nonce> some =
          std::span(nonces).first(std::min(nonces.size(), part.slots.size()));
      if (random_bytes({some.front().data(), some.size() * kNonceBytes})) left = some.size();
    }
    const TierItem& item = part.work->outer->items()[slot.item];
    EntryInfo info = item.info;
    info.words = 0;
    const std::span<uint8_t> out(part.memory.data() + slot.offset, info.bytes + kSealBytes);
    if (left == 0 ||
        !seal_entry(cipher, *slot.key, item.key, info, nonces[--left], item.source, out)) {
      slot.outcome = TierOutcome::failed;
    }
  }
  cipher.forget();
}

// Fills the batch for the inner tier. Returns false if there is nothing for it, or no memory.
bool SealedCore::fill_inner(Part& part) {
  TierBatch& outer = *part.work->outer;
  const auto passes = [](const Slot& slot) { return slot.outcome == TierOutcome::pending; };
  const auto count = std::count_if(part.slots.begin(), part.slots.end(), passes);
  if (count == 0) return false;
  auto made = TierBatch::make(outer.op(), static_cast<size_t>(count));
  if (!made) return false;
  part.inner = *std::move(made);
  part.inner->deadline_ns = outer.deadline_ns;
  part.inner->durable = outer.durable;
  size_t next = 0;
  for (Slot& slot : part.slots) {
    if (!passes(slot)) continue;
    const TierItem& from = outer.items()[slot.item];
    TierItem& to = part.inner->items()[next];
    slot.inner = next++;
    to.key = slot.key->name(from.key);
    if (!part.work->names.empty()) part.work->names[slot.item] = to.key;
    to.info = from.info;
    to.info.layout = sealed_layout(from.info.layout);
    to.info.words = 0;
    to.info.parent = 0;  // The parent names a key, so it is not passed on.
    to.priority = from.priority;
    uint8_t* const bytes = part.memory.data() + slot.offset;
    if (outer.op() == TierOp::put) {
      to.info.bytes += kSealBytes;
      to.source = {bytes, to.info.bytes};
    } else if (outer.op() == TierOp::get) {
      to.into = {bytes, std::min<uint64_t>(from.into.size(), traits_.max_entry_bytes) + kSealBytes};
    }
  }
  return true;
}

// Requires: the caller is inside.
void SealedCore::hand_over(const PartPtr& part) try {
  const TierOutcome verdict = part->work->outer->verdict(monotonic_ns());
  if (verdict != TierOutcome::pending) return give_up(part, verdict);
  if (!fill_inner(*part)) return give_up(part, TierOutcome::failed);
  const std::shared_ptr<TierBatch> inner = part->inner;
  inner->on_done = [this, part](TierBatch&) { answered(part); };
  {
    const base::Lock lock(mutex_);
    in_flight_.push_front(part.get());
    part->in_flight = in_flight_.begin();
    if (watching_ == 0) wake_.notify_one();
  }
  inner_->submit(inner);
} catch (const std::bad_alloc&) {
  part->inner = nullptr;
  give_up(part, TierOutcome::failed);
}

// The inner tier has ended the part. Any thread.
void SealedCore::answered(const PartPtr& part) {
  const bool is_get = part->work->outer->op() == TierOp::get;
  const auto is_done = [](const TierItem& item) { return item.outcome == TierOutcome::done; };
  const std::span<const TierItem> items = part->inner->items();
  const bool opens = is_get && std::any_of(items.begin(), items.end(), is_done);
  try {
    const base::Lock lock(mutex_);
    in_flight_.erase(part->in_flight);
    if (opens) {
      to_open_.push_back(part);
      wake_.notify_one();
    }
  } catch (const std::bad_alloc&) {
    return give_up(part, TierOutcome::failed);
  }
  if (!opens) settle(part);
}

// A get: decrypts what was read into the caller's memory.
void SealedCore::open(const PartPtr& part, Cipher& cipher) {
  for (Slot& slot : part->slots) {
    if (slot.outcome != TierOutcome::pending) continue;
    TierItem& found = part->inner->items()[slot.inner];
    if (found.outcome != TierOutcome::done) continue;
    const TierItem& wanted = part->work->outer->items()[slot.item];
    EntryInfo info = found.info;
    info.layout = sealed_layout(info.layout);
    info.bytes -= std::min(info.bytes, kSealBytes);
    info.words = 0;
    const bool fits = found.info.bytes <= found.into.size();
    if (!fits || !open_entry(cipher, *slot.key, wanted.key, info,
                             found.into.first(found.info.bytes), wanted.into.data())) {
      found.outcome = TierOutcome::corrupt;
    }
  }
  cipher.forget();
  remove_corrupt(*part);
  settle(part);
}

// Removes entries that did not authenticate: they must not stand in the way of good ones.
void SealedCore::remove_corrupt(const Part& part) try {
  std::vector<EntryKey> keys;
  for (const TierItem& item : part.inner->items()) {
    if (item.outcome == TierOutcome::corrupt) keys.push_back(item.key);
  }
  if (keys.empty() || !enter()) return;
  if (auto made = TierBatch::make(TierOp::remove, keys.size())) {
    for (size_t i = 0; i < keys.size(); ++i) (*made)->items()[i].key = keys[i];
    inner_->submit(*std::move(made));
  }
  leave();
} catch (const std::bad_alloc&) {
  // The entry stays, and is found corrupt again.
}

// Copies outcomes from the inner batch to the caller's.
void SealedCore::settle(const PartPtr& part) {
  const TierOp op = part->work->outer->op();
  for (Slot& slot : part->slots) {
    if (slot.outcome != TierOutcome::pending) continue;
    const TierItem& found = part->inner->items()[slot.inner];
    slot.outcome = found.outcome;
    if (found.outcome != TierOutcome::done || (op != TierOp::get && op != TierOp::contains))
      continue;
    EntryInfo& info = part->work->outer->items()[slot.item].info;
    info = found.info;
    info.layout = sealed_layout(info.layout);
    info.bytes -= std::min(info.bytes, kSealBytes);
    info.words = 0;
    info.parent = 0;
  }
  end_items(part);
}

// Ends the items that have no outcome yet.
void SealedCore::give_up(const PartPtr& part, TierOutcome outcome) {
  for (Slot& slot : part->slots) {
    if (slot.outcome == TierOutcome::pending) slot.outcome = outcome;
  }
  end_items(part);
}

void SealedCore::end_items(const PartPtr& part) {
  const std::shared_ptr<Work> work = part->work;
  const TierOp op = work->outer->op();
  part->inner = nullptr;  // The inner batch still refers to the part.
  part->memory = {};
  if (work->settled.fetch_add(1) + 1 == work->parts) keep_order(*work);
  for (const Slot& slot : part->slots) {
    counters_.count(op, slot.outcome, work->outer->items()[slot.item].info.bytes);
    work->outer->end(slot.item, slot.outcome);
  }
  {
    const base::Lock lock(mutex_);
    items_ -= part->slots.size();
    // Memory was freed.
    if (!queues_[static_cast<size_t>(op == TierOp::get ? Queue::gets : Queue::puts)].empty()) {
      wake_.notify_one();
    }
  }
  if (work->ended.fetch_add(1) + 1 == work->parts) finish(*work);
}

// Parts end in any order. Touches the whole batch in one inner batch, so that its deepest entry is
// evicted first.
void SealedCore::keep_order(const Work& work) {
  const auto has_name = [](const EntryKey& key) { return !(key == EntryKey()); };
  const auto count = std::count_if(work.names.begin(), work.names.end(), has_name);
  if (count == 0 || !enter()) return;
  if (auto made = TierBatch::make(TierOp::touch, static_cast<size_t>(count))) {
    size_t next = 0;
    for (const EntryKey& key : work.names) {
      if (has_name(key)) (*made)->items()[next++].key = key;
    }
    inner_->submit(*std::move(made));
  }
  leave();
}

void SealedCore::finish(Work& work) {
  const TierOp op = work.outer->op();
  const uint64_t now_ns = monotonic_ns();
  const base::Lock lock(mutex_);
  unfinished_.erase(work.number);
  if (op == TierOp::get) reading_.end(now_ns);
  if (op == TierOp::put) writing_.end(now_ns);
  changed_.notify_all();
}

}  // namespace stemma::tier::seal
