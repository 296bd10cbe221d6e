// What a stack puts where: which levels want an entry, what they were given, and the outcome.
#include "tier/layered_stack.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// After this many uses, a write-back level gets an entry that never left memory.
constexpr uint32_t kHotUses = 4;
// Assumed capacity of a level that does not report one, such as Redis: small for any of them.
constexpr uint64_t kUnknownRoom = 16U << 20U;

// Whether a level wants an entry that was just computed, or that leaves memory.
bool wants_first(WritePolicy policy, uint32_t seen, Sighting sighting) noexcept {
  switch (policy) {
    case WritePolicy::write_through: return true;
    case WritePolicy::write_back: return sighting == Sighting::evicted;
    case WritePolicy::on_second_use: return seen >= 2;
  }
  return false;
}

// Whether a level wants an entry that was used again. `without`: the level is known not to have it;
// then it gets the entry at most once in a tick (`due`), because the put may fail again. A
// write-back level never had it and wants it once it is hot: an entry in constant use never leaves
// memory, and would be lost with the process.
bool wants_again(WritePolicy policy, uint32_t seen, bool without, bool due) noexcept {
  if (without) return due && (policy != WritePolicy::write_back || seen >= kHotUses);
  return policy == WritePolicy::on_second_use && seen >= 2;
}

}  // namespace

LevelMask LayeredStack::wanting(const EntryKey& key, Sighting sighting) {
  const bool again = sighting == Sighting::used_again;
  const LevelMask awake = again ? awake_levels() : 0;
  LevelMask wanting = 0;
  LevelMask told = 0;
  {
    const base::Lock lock(mutex_);
    const uint32_t seen = sighting == Sighting::evicted ? 0 : sightings_.saw(key);
    const uint32_t now = tick();
    const bool due = again && sightings_.is_due(key, now);
    // Levels that lost it or refused it.
    const LevelMask without = sightings_.lacking(key) | sightings_.refused(key);
    for (uint32_t l = 0; l < levels_.size(); ++l) {
      const LevelMask bit = LevelMask{1} << l;
      const WritePolicy policy = levels_[l]->options.write;
      bool wants = again ? wants_again(policy, seen, (without & bit) != 0, due)
                         : wants_first(policy, seen, sighting);
      // A level that often loses an entry would lose it again: most such puts are useless.
      if (wants && again && (sightings_.lacking(key) & bit) != 0) wants = !sightings_.waits(key, l);
      if (wants) wanting |= bit;
    }
    LevelMask there = sightings_.stored(key);
    // The last chance to store it. A tier that still has it writes nothing.
    if (sighting == Sighting::evicted) there &= ~perhaps_lost(key);
    wanting &= ~(there | sightings_.too_large(key));
    if (due) {
      told = awake & ~(wanting | without | sightings_.too_large(key));
      if ((told | wanting) != 0) sightings_.set_told(key, now);
    }
  }
  for (size_t l = 0; l < levels_.size(); ++l) {
    const LevelMask bit = LevelMask{1} << l;
    if ((told & bit) != 0) levels_[l]->writer->touch(key);
    // Copies for a level that is down would be useless.
    if (again && (wanting & bit) != 0 && !levels_[l]->tier->stats().reachable) wanting &= ~bit;
  }
  return wanting;
}

// Tells levels of an entry's use once in each tick. A tick ends when a level was given a small part
// of its capacity, so that its content cannot all be replaced between two ticks; or after some
// seconds, because other processes may put there too.
uint32_t LayeredStack::tick() {
  constexpr uint64_t kLongNs = 10'000'000'000;
  constexpr uint64_t kPart = 32;  // Telling a level costs less than a hundred bytes.
  const uint64_t now = now_ns();
  bool over = elapsed_ns(tick_ns_, now) >= kLongNs;
  for (const auto& level : levels_) over = over || level->since_tick >= room_of(*level) / kPart;
  if (over) {
    ++tick_;
    tick_ns_ = now;
    for (const auto& level : levels_) level->since_tick = 0;
  }
  return tick_;
}

uint64_t LayeredStack::room_of(const Level& level) noexcept {
  const uint64_t capacity = level.tier->traits().capacity_bytes;
  return capacity == 0 ? kUnknownRoom : capacity;
}

void LayeredStack::given(Level& level, uint64_t bytes) noexcept {
  level.since_tick += bytes;
  level.since_sure += bytes;
  if (level.since_sure < room_of(level) / 4) return;
  level.since_sure = 0;
  level.sure_tick = level.next_sure_tick;
  level.next_sure_tick = tick_;
}

LevelMask LayeredStack::perhaps_lost(const EntryKey& key) const noexcept {
  LevelMask lost = 0;
  for (uint32_t l = 0; l < levels_.size(); ++l) {
    if (sightings_.known_tick(key, l) < levels_[l]->sure_tick) lost |= LevelMask{1} << l;
  }
  return lost & sightings_.stored(key);
}

void LayeredStack::touched(size_t level, const EntryKey& key, TierOutcome outcome) {
  const auto number = static_cast<uint32_t>(level);
  const LevelMask bit = LevelMask{1} << level;
  const base::Lock lock(mutex_);
  if (outcome == TierOutcome::done) {
    sightings_.set_stored(key, bit, sightings_.told_tick(key));
    sightings_.stayed(key, number);
  }
  if (outcome != TierOutcome::absent) return;
  if ((sightings_.stored(key) & bit) != 0) sightings_.lost(key, number);
  sightings_.set_lacking(key, bit);
  sightings_.make_due(key);
}

LevelMask LayeredStack::store(const StoreItem& item, LevelMask levels) {
  NotTaken by;
  {
    const base::Lock lock(mutex_);
    by = put(item, levels, &Level::stored);
  }
  const LevelMask asked = levels & ((LevelMask{1} << levels_.size()) - 1);
  const LevelMask taken = asked & ~(by.too_large | by.full);
  if (item.listener == nullptr) return taken;
  for (uint32_t l = 0; l < levels_.size(); ++l) {
    const LevelMask bit = LevelMask{1} << l;
    if ((by.too_large & bit) != 0) {
      item.listener->settled(item.number, l, TierOutcome::refused);
    } else if ((by.full & bit) != 0) {
      item.listener->settled(item.number, l, TierOutcome::cancelled);
    }
  }
  return taken;
}

LayeredStack::NotTaken LayeredStack::put(const StoreItem& item, LevelMask levels,
                                         std::atomic<uint64_t> Level::* counter) {
  levels &= (LevelMask{1} << levels_.size()) - 1;
  NotTaken by;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const uint64_t most = levels_[l]->tier->traits().max_entry_bytes;
    const LevelMask bit = LevelMask{1} << l;
    if ((levels & bit) == 0 || most == 0 || item.info.bytes <= most) continue;
    // The level would refuse it every time.
    levels &= ~bit;
    by.too_large |= bit;
    if ((sightings_.too_large(item.key) & bit) != 0) continue;
    sightings_.set_too_large(item.key, bit);
    levels_[l]->too_large.fetch_add(1, std::memory_order_relaxed);
  }
  sightings_.set_stored(item.key, levels, tick_);
  for (size_t l = 0; l < levels_.size(); ++l) {
    const LevelMask bit = LevelMask{1} << l;
    if ((levels & bit) == 0) continue;
    if (levels_[l]->writer->add(item)) {
      given(*levels_[l], item.info.bytes);
      ((*levels_[l]).*counter).fetch_add(1, std::memory_order_relaxed);
      if (item.sighting == Sighting::evicted)
        levels_[l]->written_back.fetch_add(1, std::memory_order_relaxed);
    } else {
      by.full |= bit;
    }
  }
  if (by.full != 0) sightings_.set_lacking(item.key, by.full);
  return by;
}

void LayeredStack::settled(size_t level, const StoreItem& item, TierOutcome outcome) {
  const LevelMask bit = LevelMask{1} << level;
  if (outcome != TierOutcome::done) levels_[level]->lost.fetch_add(1, std::memory_order_relaxed);
  {
    const base::Lock lock(mutex_);
    if (outcome == TierOutcome::done) {
      sightings_.set_stored(item.key, bit, 0);
    } else if (outcome == TierOutcome::refused) {
      // A tier that refused it once will probably refuse it again: do not try at every use.
      sightings_.set_refused(item.key, bit);
      sightings_.set_told(item.key, tick_);
    } else {
      sightings_.set_lacking(item.key, bit);
    }
  }
  if (item.listener != nullptr) {
    item.listener->settled(item.number, static_cast<uint32_t>(level), outcome);
  }
}

bool LayeredStack::flush(uint64_t until_ns) {
  {
    base::Lock lock(mutex_);
    const auto idle = [this]() STEMMA_REQUIRES(mutex_) { return ahead_.empty() && !fetching_; };
    if (!wait_until(changed_, lock, until_ns, idle)) return false;
  }
  for (auto& level : levels_) {
    if (level->writer->drain(until_ns) && level->tier->flush(until_ns)) continue;
    // It may have given up entries that it could not make durable. Do not count on any of them.
    const base::Lock lock(mutex_);
    level->sure_tick = level->next_sure_tick = ++tick_;
    level->since_sure = 0;
    return false;
  }
  return true;
}

}  // namespace stemma::tier
