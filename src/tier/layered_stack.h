// LayeredStack implements TierStack. Each tier and its writer is a Level. Flights are the entries
// being loaded, so that each is asked for once. One lock guards speeds, sightings and the entries
// to prefetch; it is never held while a tier is asked.
//
// Threading: as TierStack says.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lock.h"
#include "stemma/tier/tier_stack.h"
#include "tier/breaker.h"
#include "tier/sightings.h"
#include "tier/speed.h"
#include "tier/writer.h"

namespace stemma::tier {

class LayeredStack final : public TierStack {
 public:
  explicit LayeredStack(StackOptions&& options);
  ~LayeredStack() override;
  LayeredStack(const LayeredStack&) = delete;
  LayeredStack& operator=(const LayeredStack&) = delete;
  bool take_arena();  // False: no memory for it.
  void start();

  std::vector<LevelMask> where(std::span<const Wanted> wanted) override;
  std::vector<LevelMask> where_now(std::span<const Wanted> wanted) override;
  LoadChoice choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) override;
  void prefilled(uint32_t tokens, uint64_t ns) override;
  std::vector<Loaded> load(std::span<const Wanted> wanted, std::span<const LevelMask> levels,
                           uint64_t wait_ns, const OnLoaded& on_loaded) override;
  void prefetch(std::span<const Wanted> wanted) override;
  std::shared_ptr<Payload> make_payload(uint64_t bytes) override;
  LevelMask wanting(const EntryKey& key, Sighting sighting) override;
  LevelMask store(const StoreItem& item, LevelMask levels) override;
  bool flush(uint64_t until_ns) override;
  std::vector<TierOutcome> remove(std::span<const EntryKey> keys, uint64_t until_ns) override;
  std::vector<LevelPurged> purge(const Purge& what, uint64_t until_ns) override;

  size_t levels() const noexcept override { return levels_.size(); }
  Tier& tier(size_t level) noexcept override { return *levels_[level]->tier; }
  WritePolicy write_policy(size_t level) const noexcept override {
    return levels_[level]->options.write;
  }
  uint64_t load_ns() const noexcept override { return options_.load_ns; }
  uint64_t store_ns() const noexcept override { return options_.store_ns; }
  StackStats stats() const override;

 private:
  struct Level {
    explicit Level(const Breaker::Options& patience) : breaker(patience) {}
    std::unique_ptr<Tier> tier;
    StackLevel options;
    std::unique_ptr<Writer> writer;
    std::atomic<uint64_t> hits{0}, hit_bytes{0}, misses{0}, stored{0}, promoted{0}, written_back{0},
        lost{0}, too_large{0}, too_slow{0};
    // Guarded by mutex_, as all below.
    Breaker breaker;  // Open after it did not answer in time.
    uint64_t probed_ns = 0;
    uint64_t since_tick = 0;  // Bytes given to it.
    // Between the first and the second of these ticks it was given a quarter of its room, and since
    // then less than a quarter.
    uint32_t sure_tick = 0, next_sure_tick = 0;
    uint64_t since_sure = 0;  // Bytes given to it since next_sure_tick.
  };
  // An entry being loaded, and those waiting for it.
  struct Flight {
    base::WaitMutex mutex;
    base::Condition landed;
    bool over STEMMA_GUARDED_BY(mutex) = false;
    Loaded loaded STEMMA_GUARDED_BY(mutex);
  };
  class Loading;
  class Removal;
  struct Trip {  // One entry of a load().
    size_t at = 0;
    LevelMask left = 0;
    std::shared_ptr<Payload> room;
    std::shared_ptr<Flight> flight;  // Null: it has landed.
    uint64_t purges = 0;             // purges_ when it began.
  };

  uint64_t now_ns() const noexcept { return clock_.now_ns(); }
  // Waits until the batch is finished. False: `until_ns` came, or no item ended for `silence_ns`.
  static bool wait_while_moving(TierBatch& batch, uint64_t begun_ns, uint64_t silence_ns,
                                uint64_t until_ns);
  // How long a level may load with no item ending before it counts as stalled.
  uint64_t silence_ns(size_t level, uint64_t first_bytes) const;
  void land(const Wanted& wanted, const Trip& trip, const Loaded& loaded);
  void touch_down(const EntryKey& key, Flight& flight, const Loaded& loaded) noexcept;
  // Returns the levels that did not take it.
  struct NotTaken {
    LevelMask too_large = 0;
    LevelMask full = 0;  // The queue was full.
  };
  NotTaken put(const StoreItem& item, LevelMask levels, std::atomic<uint64_t> Level::* counter)
      STEMMA_REQUIRES(mutex_);
  LevelPurged purge_level(size_t level, const Purge& what, uint64_t until_ns);
  // Whether an entry whose load began at this count of purges may be put: no purge began or ended
  // since, and none is under way for it.
  bool may_promote(const EntryKey& key, uint64_t purges) const noexcept STEMMA_REQUIRES(mutex_);
  void settled(size_t level, const StoreItem& item, TierOutcome outcome);
  void touched(size_t level, const EntryKey& key, TierOutcome outcome);
  uint32_t tick() STEMMA_REQUIRES(mutex_);
  static uint64_t room_of(const Level& level) noexcept;
  // Notes that the level was given these bytes.
  void given(Level& level, uint64_t bytes) noexcept STEMMA_REQUIRES(mutex_);
  // The levels that had the entry but may have evicted it, given how much they received since.
  LevelMask perhaps_lost(const EntryKey& key) const noexcept STEMMA_REQUIRES(mutex_);
  LevelMask awake_levels() const;
  void rest(size_t level);
  void wake(size_t level);
  void probe(uint32_t level, const Wanted& wanted);
  void fetch_ahead();

  StackOptions options_;
  const Clock& clock_;
  std::shared_ptr<TransferArena> arena_;  // Null: not requested.
  std::vector<std::unique_ptr<Level>> levels_;

  mutable base::WaitMutex mutex_;
  std::vector<Speed> speeds_ STEMMA_GUARDED_BY(mutex_);
  Average token_ns_ STEMMA_GUARDED_BY(mutex_);
  Sightings sightings_ STEMMA_GUARDED_BY(mutex_);
  uint32_t tick_ STEMMA_GUARDED_BY(mutex_) = 1;  // Levels are told of an entry's use once a tick.
  uint64_t tick_ns_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::unordered_map<EntryKey, std::shared_ptr<Flight>> flights_ STEMMA_GUARDED_BY(mutex_);
  std::deque<Wanted> ahead_ STEMMA_GUARDED_BY(mutex_);
  uint64_t purges_ STEMMA_GUARDED_BY(mutex_) = 0;  // Begun and ended.
  std::vector<Purge> purging_ STEMMA_GUARDED_BY(mutex_);
  std::vector<const std::unordered_set<EntryKey>*> removing_ STEMMA_GUARDED_BY(mutex_);
  bool fetching_ STEMMA_GUARDED_BY(mutex_) = false;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  base::Condition changed_;
  uint64_t prefetches_ STEMMA_GUARDED_BY(mutex_) = 0,
                       dropped_prefetches_ STEMMA_GUARDED_BY(mutex_) = 0,
                       probes_ STEMMA_GUARDED_BY(mutex_) = 0, rests_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> queries_{0}, late_queries_{0}, shared_loads_{0}, crowded_{0};
  std::thread ahead_thread_;
};

}  // namespace stemma::tier
