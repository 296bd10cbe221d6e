#include "tier/disk/slot_books.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace stemma::tier::disk {

namespace {

Touch touch_at(uint64_t now_ns, Priority priority) noexcept {
  Touch touch;
  touch.now_ns = now_ns;
  touch.priority = priority;
  return touch;
}

}  // namespace

Result<std::unique_ptr<SlotBooks>> SlotBooks::create(const Options& options) {
  try {
    std::unique_ptr<SlotBooks> books(new SlotBooks);
    books->chunk_bytes_ = options.chunk_bytes;
    books->max_chunks_ = options.max_chunks;
    if (!knows_policy(options.policy)) {
      return Error(Errc::invalid_argument, "there is no retention policy of that name");
    }
    // Address space only; memory is taken as records are.
    books->policy_ = make_policy(options.policy, 1U << 27U);
    if (!books->policy_) return Error(Errc::out_of_memory, "no memory for a disk tier's index");
    books->buckets_.assign(1024, kNoRecord);
    books->chunks_.resize(options.max_chunks);
    return books;
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a disk tier's index");
  }
}

// ---- The hash -------------------------------------------------------------------------------------

size_t SlotBooks::bucket(const EntryKey& key) const noexcept {
  return std::hash<EntryKey>()(key) & (buckets_.size() - 1);
}

RecordId SlotBooks::look(const EntryKey& key, Record::State state) const noexcept {
  for (RecordId id = buckets_[bucket(key)]; id != kNoRecord; id = records_[id].next) {
    const Record& record = records_[id];
    if (record.state == state && record.chain == key.chain && record.kind == key.kind &&
        record.group == key.group) {
      return id;
    }
  }
  return kNoRecord;
}

RecordId SlotBooks::find(const EntryKey& key) const noexcept {
  return look(key, Record::State::present);
}
RecordId SlotBooks::find_writing(const EntryKey& key) const noexcept {
  return look(key, Record::State::writing);
}

void SlotBooks::hash_in(RecordId id) noexcept {
  RecordId& first = buckets_[bucket(records_[id].key())];
  records_[id].next = first;
  first = id;
}

void SlotBooks::hash_out(RecordId id) noexcept {
  RecordId* at = &buckets_[bucket(records_[id].key())];
  while (*at != id) at = &records_[*at].next;
  *at = records_[id].next;
  records_[id].next = kNoRecord;
}

bool SlotBooks::grow_hash() {
  try {
    std::vector<RecordId> larger(buckets_.size() * 2, kNoRecord);
    std::vector<RecordId> old = std::move(buckets_);
    buckets_ = std::move(larger);
    for (RecordId id : old) {
      while (id != kNoRecord) {
        const RecordId next = records_[id].next;
        hash_in(id);
        id = next;
      }
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;  // Longer chains until there is memory.
  }
}

// ---- Records --------------------------------------------------------------------------------------

RecordId SlotBooks::take_record() {
  if (free_record_ != kNoRecord) {
    const RecordId id = free_record_;
    free_record_ = records_[id].next;
    return id;
  }
  const auto id = static_cast<RecordId>(records_.size());
  if (id >= 1U << 27U || !policy_->prepare(id)) return kNoRecord;
  try {
    records_.emplace_back();
  } catch (const std::bad_alloc&) {
    return kNoRecord;
  }
  if (records_.size() > buckets_.size() * 2) grow_hash();
  return id;
}

RecordId SlotBooks::occupy(uint32_t chunk, uint32_t slot, const EntryKey& key,
                           const EntryInfo& info, Priority priority) {
  const RecordId id = take_record();
  if (id == kNoRecord) return kNoRecord;
  Record& record = records_[id];
  record = Record();
  record.chain = key.chain;
  record.kind = key.kind;
  record.group = key.group;
  record.bytes = info.bytes;
  record.layout = info.layout;
  record.begin = info.begin;
  record.end = info.end;
  record.has_words = info.words != 0;
  record.priority = std::min(priority, kMaxPriority);
  record.chunk = chunk;
  record.slot = slot;
  record.state = Record::State::writing;
  hash_in(id);
  Chunk& home = chunks_[chunk];
  home.slots[slot] = id;
  if (home.live++ == 0) --empty_count_;
  ++home.busy;
  used_bytes_ += uint64_t{home.slot_pages} * kPage;
  return id;
}

RecordId SlotBooks::adopt(const EntryKey& key, const EntryInfo& info, uint32_t chunk,
                          uint32_t slot) {
  Chunk& home = chunks_[chunk];
  STEMMA_CHECK((home.slots[slot] & kFreeBit) != 0);
  return occupy(chunk, slot, key, info, kDefaultPriority);
}

void SlotBooks::end_adopting() noexcept {
  for (Class& one : classes_) one.with_room.clear();
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    if (chunk.slot_pages == 0) continue;
    chunk.free = kNone;
    for (auto slot = static_cast<uint32_t>(chunk.slots.size()); slot-- > 0;) {
      if ((chunk.slots[slot] & kFreeBit) == 0) continue;
      chunk.slots[slot] = kFreeBit | chunk.free;
      chunk.free = slot;
    }
    if (chunk.free != kNone) link_free_chunk(i);
  }
}

void SlotBooks::publish(RecordId id, uint64_t now_ns) noexcept {
  Record& record = records_[id];
  STEMMA_DCHECK(record.state == Record::State::writing);
  record.state = Record::State::present;
  --chunks_[record.chunk].busy;
  ++present_;
  touch(id, now_ns);
}

void SlotBooks::touch(RecordId id, uint64_t now_ns) noexcept {
  Record& record = records_[id];
  Chunk& home = chunks_[record.chunk];
  home.stamps -= record.stamp;
  record.stamp = ++stamp_;
  home.stamps += record.stamp;
  policy_->touch(id, touch_at(now_ns, record.priority));
}

void SlotBooks::pin(RecordId id) noexcept {
  Record& record = records_[id];
  if (record.pins++ == 0 && record.state == Record::State::present) ++chunks_[record.chunk].busy;
}

void SlotBooks::unpin(RecordId id) noexcept {
  Record& record = records_[id];
  if (--record.pins != 0 || record.state != Record::State::present) return;
  --chunks_[record.chunk].busy;
  // It was up for eviction meanwhile: it counts as used now.
  if (!policy_->holds(id)) policy_->touch(id, touch_at(0, record.priority));
}

void SlotBooks::forget(RecordId id) noexcept {
  Record& record = records_[id];
  hash_out(id);
  Chunk& home = chunks_[record.chunk];
  if (record.state == Record::State::present) {
    if (policy_->holds(id)) policy_->remove(id);
    home.stamps -= record.stamp;
    --present_;
    if (record.pins == 0) ++home.busy;
  }
  record.state = Record::State::dying;
}

void SlotBooks::retire(RecordId id) noexcept { forget(id); }

void SlotBooks::free(RecordId id) noexcept {
  Record& record = records_[id];
  STEMMA_DCHECK(record.state == Record::State::dying && record.pins == 0);
  Chunk& home = chunks_[record.chunk];
  const bool had_none = home.free == kNone;
  home.slots[record.slot] = kFreeBit | home.free;
  home.free = record.slot;
  if (--home.live == 0) ++empty_count_;
  --home.busy;
  used_bytes_ -= uint64_t{home.slot_pages} * kPage;
  if (had_none) link_free_chunk(record.chunk);
  record.state = Record::State::gone;
  record.next = free_record_;
  free_record_ = id;
}

void SlotBooks::lose(RecordId id) noexcept {
  Record& record = records_[id];
  Chunk& home = chunks_[record.chunk];
  home.slots[record.slot] = kLost;  // Until restore_lost(), or the chunk changes its class.
  ++lost_;
  if (--home.live == 0) ++empty_count_;
  --home.busy;
  used_bytes_ -= uint64_t{home.slot_pages} * kPage;
  record.state = Record::State::gone;
  record.next = free_record_;
  free_record_ = id;
}

void SlotBooks::restore_lost() noexcept {
  for (uint32_t i = 0; i < chunks_.size() && lost_ != 0; ++i) {
    Chunk& chunk = chunks_[i];
    const bool had_none = chunk.free == kNone;
    for (uint32_t slot = 0; slot < chunk.slots.size(); ++slot) {
      if (chunk.slots[slot] != kLost) continue;
      chunk.slots[slot] = kFreeBit | chunk.free;
      chunk.free = slot;
      --lost_;
    }
    if (had_none && chunk.free != kNone) link_free_chunk(i);
  }
}

// Requires: no records in them.
void SlotBooks::forget_slots(Chunk& chunk) noexcept {
  lost_ -= static_cast<uint64_t>(std::ranges::count(chunk.slots, kLost));
  chunk.slots.clear();
}

uint64_t SlotBooks::offset(RecordId id) const noexcept {
  const Record& record = records_[id];
  return slot_offset(chunk_bytes_, record.chunk, record.slot, chunks_[record.chunk].slot_pages);
}

// ---- Chunks ---------------------------------------------------------------------------------------

bool SlotBooks::assign(uint32_t chunk, uint32_t slot_pages) {
  try {
    if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
    Chunk& home = chunks_[chunk];
    STEMMA_CHECK(home.live == 0);
    const auto count = static_cast<uint32_t>(slots_in(chunk_bytes_, slot_pages));
    std::vector<uint32_t> slots(count);
    const auto same = std::find_if(classes_.begin(), classes_.end(),
                                   [&](const Class& one) { return one.slot_pages == slot_pages; });
    if (same == classes_.end()) classes_.push_back({.slot_pages = slot_pages, .with_room = {}});
    // Room to link any chunk without memory later.
    for (Class& one : classes_) one.with_room.reserve(chunks_.size());
    if (home.slot_pages != 0) {
      if (home.free != kNone) unlink_free_chunk(chunk);
    } else {
      ++chunk_count_;
      ++empty_count_;
      used_bytes_ += kPage;
    }
    for (uint32_t slot = 0; slot < count; ++slot) {
      slots[slot] = kFreeBit | (slot + 1 < count ? slot + 1 : kNone);
    }
    forget_slots(home);
    home.slots = std::move(slots);
    home.slot_pages = slot_pages;
    home.free = count != 0 ? 0 : kNone;
    home.stamps = 0;
    if (count != 0) link_free_chunk(chunk);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void SlotBooks::spoil(uint32_t chunk) noexcept {
  Chunk& home = chunks_[chunk];
  STEMMA_CHECK(home.live == 0 && home.slot_pages != 0);
  if (home.free != kNone) unlink_free_chunk(chunk);
  forget_slots(home);
  home.slot_pages = kSpoiled;
  home.free = kNone;
  home.stamps = 0;
}

void SlotBooks::release(uint32_t chunk) noexcept {
  Chunk& home = chunks_[chunk];
  STEMMA_CHECK(home.live == 0);
  if (home.slot_pages == 0) return;
  if (home.free != kNone) unlink_free_chunk(chunk);
  forget_slots(home);
  home = Chunk();
  --chunk_count_;
  --empty_count_;
  used_bytes_ -= kPage;
}

void SlotBooks::link_free_chunk(uint32_t chunk) {
  for (Class& one : classes_) {
    if (one.slot_pages == chunks_[chunk].slot_pages) one.with_room.push_back(chunk);
  }
}

void SlotBooks::unlink_free_chunk(uint32_t chunk) noexcept {
  for (Class& one : classes_) {
    if (one.slot_pages == chunks_[chunk].slot_pages) std::erase(one.with_room, chunk);
  }
}

uint32_t SlotBooks::chunk_with_room(uint32_t slot_pages) const noexcept {
  for (const Class& one : classes_) {
    if (one.slot_pages == slot_pages && !one.with_room.empty()) return one.with_room.back();
  }
  return kNoChunk;
}

uint32_t SlotBooks::unused_chunk() const noexcept {
  if (chunk_count_ >= max_chunks_ || growth_refused_) return kNoChunk;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].slot_pages == 0) return chunk;
  }
  return kNoChunk;
}

// ---- Giving up ------------------------------------------------------------------------------------

void SlotBooks::evict(RecordId id) noexcept {
  ++evictions_;
  evicted_bytes_ += records_[id].bytes;
  policy_->evicted(id);
  forget(id);
  free(id);
}

// The next to go that can go; those that are being read come back when that ends.
RecordId SlotBooks::victim(uint64_t now_ns) noexcept {
  for (;;) {
    const RecordId id = policy_->victim(now_ns, false, kNoTenant).cell;
    if (id == kNoCell) return kNoRecord;
    if (records_[id].pins == 0) return id;
    policy_->remove(id);
  }
}

RecordId SlotBooks::oldest_in_class(uint32_t slot_pages) const noexcept {
  RecordId oldest = kNoRecord;
  for (const Chunk& chunk : chunks_) {
    if (chunk.slot_pages != slot_pages) continue;
    for (const uint32_t id : chunk.slots) {
      if ((id & kFreeBit) != 0 || id == kLost) continue;
      const Record& record = records_[id];
      if (record.state != Record::State::present || record.pins != 0) continue;
      if (oldest == kNoRecord || record.stamp < records_[oldest].stamp) oldest = id;
    }
  }
  return oldest;
}

uint32_t SlotBooks::cheapest_chunk(uint32_t not_slot_pages) const noexcept {
  uint32_t best = kNoChunk;
  uint64_t best_age = 0;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (chunk.slot_pages == 0 || chunk.slot_pages == not_slot_pages || chunk.busy != 0) continue;
    const uint64_t age = chunk.live == 0 ? 0 : chunk.stamps / chunk.live;
    if (best == kNoChunk || age < best_age) best = i, best_age = age;
  }
  return best;
}

void SlotBooks::empty(uint32_t chunk) noexcept {
  // evict() changes the entry of the slot it frees and no other.
  for (uint32_t slot = 0; slot < chunks_[chunk].slots.size(); ++slot) {
    const uint32_t id = chunks_[chunk].slots[slot];
    if ((id & kFreeBit) == 0 && id != kLost) evict(id);
  }
}

uint32_t SlotBooks::empty_oldest_chunk() noexcept {
  const uint32_t chunk = cheapest_chunk(0);
  if (chunk == kNoChunk) return kNoRecord;
  empty(chunk);
  return chunk;
}

SlotBooks::Room SlotBooks::room_for(const EntryKey& key, const EntryInfo& info, Priority priority,
                                    uint64_t now_ns, uint64_t not_after) {
  const auto slot_pages = static_cast<uint32_t>(slot_pages_for(shape_of(info).pages));
  Room room;
  uint32_t chunk = chunk_with_room(slot_pages);
  if (chunk == kNoChunk) {
    if (const uint32_t fresh = unused_chunk(); fresh != kNoChunk) {
      room.what = Room::What::grow;
      room.chunk = fresh;
      return room;
    }
    uint32_t other = empty_count_ != 0 ? cheapest_chunk(slot_pages) : kNoChunk;
    if (other != kNoChunk && chunks_[other].live == 0) {
      room.what = Room::What::change;
      room.chunk = other;
      return room;
    }
    RecordId last = victim(now_ns);
    if (last == kNoRecord || records_[last].stamp > not_after) return room;
    if (chunks_[records_[last].chunk].slot_pages != slot_pages) {
      other = cheapest_chunk(slot_pages);
      if (other != kNoChunk) {
        empty(other);
        room.what = Room::What::change;
        room.chunk = other;
        return room;
      }
      // Every other chunk is being read from or written to.
      last = oldest_in_class(slot_pages);
      if (last == kNoRecord || records_[last].stamp > not_after) return room;
    }
    chunk = records_[last].chunk;
    evict(last);
    room.reused = true;
  }
  Chunk& home = chunks_[chunk];
  const uint32_t slot = home.free;
  home.free = home.slots[slot] & ~kFreeBit;
  if (home.free == kNone) unlink_free_chunk(chunk);
  room.record = occupy(chunk, slot, key, info, priority);
  if (room.record == kNoRecord) {
    home.slots[slot] = kFreeBit | home.free;
    if (home.free == kNone) link_free_chunk(chunk);
    home.free = slot;
    room.what = Room::What::memory;
    return room;
  }
  room.what = Room::What::slot;
  return room;
}

uint64_t SlotBooks::bytes() const noexcept {
  uint64_t sum = records_.capacity() * sizeof(Record) + buckets_.capacity() * sizeof(RecordId) +
                 policy_->bytes() + chunks_.capacity() * sizeof(Chunk);
  for (const Chunk& chunk : chunks_) sum += chunk.slots.capacity() * sizeof(uint32_t);
  return sum;
}

void SlotBooks::check_invariants() const {
  policy_->check_invariants();
  uint64_t present = 0;
  uint64_t used = 0;
  uint32_t count = 0;
  uint32_t empties = 0;
  uint64_t lost = 0;
  for (const Chunk& chunk : chunks_) {
    lost += static_cast<uint64_t>(std::ranges::count(chunk.slots, kLost));
    if (chunk.slot_pages == 0) {
      STEMMA_CHECK(chunk.live == 0 && chunk.slots.empty());
      continue;
    }
    ++count;
    if (chunk.live == 0) ++empties;
    used += kPage;
    uint32_t live = 0;
    uint32_t busy = 0;
    uint64_t stamps = 0;
    for (uint32_t slot = 0; slot < chunk.slots.size(); ++slot) {
      const uint32_t id = chunk.slots[slot];
      if ((id & kFreeBit) != 0 || id == kLost) continue;
      const Record& record = records_[id];
      STEMMA_CHECK(record.state != Record::State::gone && record.slot == slot);
      ++live;
      used += uint64_t{chunk.slot_pages} * kPage;
      const bool is_present = record.state == Record::State::present;
      if (!is_present || record.pins != 0) ++busy;
      if (!is_present) continue;
      ++present;
      stamps += record.stamp;
      STEMMA_CHECK(find(record.key()) == id);
      STEMMA_CHECK(record.pins != 0 || policy_->holds(id));
    }
    STEMMA_CHECK(live == chunk.live && busy == chunk.busy && stamps == chunk.stamps);
  }
  STEMMA_CHECK(present == present_ && used == used_bytes_ && count == chunk_count_);
  STEMMA_CHECK(count <= max_chunks_ && empties == empty_count_ && lost == lost_);
}

}  // namespace stemma::tier::disk
