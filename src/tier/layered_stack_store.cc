// What a stack puts where: which levels want an entry, what they were given, and what became of it.
#include "tier/layered_stack.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// After so many uses a write-back level gets an entry that never left memory.
constexpr uint32_t kHotUses = 4;
// What a level takes that does not tell its capacity, such as a Redis: little, for any.
constexpr uint64_t kUnknownRoom = 16U << 20U;

// Whether a level wants an entry that was computed, or that leaves memory.
bool wants_first(WritePolicy policy, uint32_t seen, Sighting sighting) noexcept {
  switch (policy) {
    case WritePolicy::write_through: return true;
    case WritePolicy::write_back: return sighting == Sighting::evicted;
    case WritePolicy::on_second_use: return seen >= 2;
  }
  return false;
}

// Whether a level wants an entry that was used again. `without`: it is known not to have it; then it is given it
// once in a tick at most (`due`), because a put may fail again. A write-back level never had it, and wants it when it
// is hot: an entry that is used all the time never leaves memory, and would be lost with the process.
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
    const std::lock_guard lock(mutex_);
    const uint32_t seen = sighting == Sighting::evicted ? 0 : sightings_.saw(key);
    const uint32_t now = tick();
    const bool due = again && sightings_.is_due(key, now);
    // Levels that lost it, or did not take it.
    const LevelMask without = sightings_.lacking(key) | sightings_.refused(key);
    for (uint32_t l = 0; l < levels_.size(); ++l) {
      const LevelMask bit = LevelMask{1} << l;
      const WritePolicy policy = levels_[l]->options.write;
      bool wants = again ? wants_again(policy, seen, (without & bit) != 0, due)
                         : wants_first(policy, seen, sighting);
      // What a level loses again and again would be lost again: most of those puts are for nothing.
      if (wants && again && (sightings_.lacking(key) & bit) != 0) wants = !sightings_.waits(key, l);
      if (wants) wanting |= bit;
    }
    LevelMask there = sightings_.stored(key);
    // The last time that it can be had. A tier that still has it writes nothing.
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
    // Copies for a level that is down would be made for nothing.
    if (again && (wanting & bit) != 0 && !levels_[l]->tier->stats().open) wanting &= ~bit;
  }
  return wanting;
}

// Levels are told of an entry's use once in each tick. A tick ends when a level was given a small part of its capacity,
// so that it cannot replace everything between two ticks, or after some seconds, because others may put there too.
uint32_t LayeredStack::tick() {
  constexpr uint64_t kLongNs = 10'000'000'000;
  constexpr uint64_t kPart = 32;  // Telling costs less than a hundred bytes.
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
  const uint32_t known = sightings_.known_tick(key);
  LevelMask lost = 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (known < levels_[l]->sure_tick) lost |= LevelMask{1} << l;
  }
  return lost & sightings_.stored(key);
}

void LayeredStack::touched(size_t level, const EntryKey& key, TierOutcome outcome) {
  const auto number = static_cast<uint32_t>(level);
  const LevelMask bit = LevelMask{1} << level;
  const std::lock_guard lock(mutex_);
  if (outcome == TierOutcome::done) {
    sightings_.set_stored(key, bit, sightings_.told_tick(key));
    sightings_.stayed(key, number);
  }
  if (outcome != TierOutcome::absent) return;
  if ((sightings_.stored(key) & bit) != 0) sightings_.lost(key, number);
  sightings_.set_lacking(key, bit);
  sightings_.make_due(key);
}

void LayeredStack::store(const StoreItem& item, LevelMask levels) {
  const std::lock_guard lock(mutex_);
  put(item, levels, &Level::stored);
}

void LayeredStack::put(const StoreItem& item, LevelMask levels,
                       std::atomic<uint64_t> Level::* counter) {
  levels &= (LevelMask{1} << levels_.size()) - 1;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const uint64_t most = levels_[l]->tier->traits().max_entry_bytes;
    const LevelMask bit = LevelMask{1} << l;
    if ((levels & bit) == 0 || most == 0 || item.info.bytes <= most) continue;
    // It would be refused whenever it is put.
    levels &= ~bit;
    if ((sightings_.too_large(item.key) & bit) != 0) continue;
    sightings_.set_too_large(item.key, bit);
    levels_[l]->too_large.fetch_add(1, std::memory_order_relaxed);
  }
  sightings_.set_stored(item.key, levels, tick_);
  LevelMask full = 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    const LevelMask bit = LevelMask{1} << l;
    if ((levels & bit) == 0) continue;
    if (levels_[l]->writer->add(item)) {
      given(*levels_[l], item.info.bytes);
      ((*levels_[l]).*counter).fetch_add(1, std::memory_order_relaxed);
      if (item.sighting == Sighting::evicted)
        levels_[l]->written_back.fetch_add(1, std::memory_order_relaxed);
    } else {
      full |= bit;
    }
  }
  if (full != 0) sightings_.set_lacking(item.key, full);
}

void LayeredStack::settled(size_t level, const EntryKey& key, TierOutcome outcome) {
  if (outcome == TierOutcome::done) {
    const std::lock_guard lock(mutex_);
    sightings_.set_stored(key, LevelMask{1} << level, 0);
    return;
  }
  levels_[level]->lost.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  // A tier that refused it once will most likely refuse it again: not every use is worth a try.
  if (outcome == TierOutcome::refused) {
    sightings_.set_refused(key, LevelMask{1} << level);
    sightings_.set_told(key, tick_);
  } else {
    sightings_.set_lacking(key, LevelMask{1} << level);
  }
}

bool LayeredStack::flush(uint64_t until_ns) {
  {
    std::unique_lock lock(mutex_);
    const auto idle = [this] { return ahead_.empty() && !fetching_; };
    if (!wait_until(changed_, lock, until_ns, idle)) return false;
  }
  for (auto& level : levels_) {
    if (!level->writer->drain(until_ns) || !level->tier->flush(until_ns)) return false;
  }
  return true;
}

}  // namespace stemma::tier
