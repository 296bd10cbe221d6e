// LayeredStack: what a TierStack is made of. One Level for each tier with its writer; flights are the
// entries on their way, so that each is asked for once; speeds, sightings and what is to be fetched ahead
// are under one lock, which is never held while a tier is asked.
//
// Threading: as TierStack says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "stemma/tier_stack.h"
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
  bool take_arena();  // False: there is no memory for it.
  void start();

  std::vector<LevelMask> where(std::span<const Wanted> wanted) override;
  LoadChoice choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) override;
  void prefilled(uint32_t tokens, uint64_t ns) override;
  std::vector<Loaded> load(std::span<const Wanted> wanted, std::span<const LevelMask> levels,
                           uint64_t wait_ns) override;
  void prefetch(std::span<const Wanted> wanted) override;
  std::shared_ptr<Payload> make_payload(uint64_t bytes) override;
  LevelMask wanting(const EntryKey& key, Sighting sighting) override;
  void store(const StoreItem& item, LevelMask levels) override;
  bool flush(uint64_t until_ns) override;
  std::vector<LevelPurged> purge(const Purge& what, uint64_t until_ns) override;

  size_t levels() const noexcept override { return levels_.size(); }
  Tier& tier(size_t level) noexcept override { return *levels_[level]->tier; }
  WritePolicy write_policy(size_t level) const noexcept override {
    return levels_[level]->options.write;
  }
  uint64_t load_ns() const noexcept override { return options_.load_ns; }
  StackStats stats() const override;

 private:
  struct Level {
    std::unique_ptr<Tier> tier;
    StackLevel options;
    std::unique_ptr<Writer> writer;
    std::atomic<uint64_t> hits{0}, hit_bytes{0}, misses{0}, stored{0}, promoted{0}, written_back{0},
        lost{0}, too_large{0}, too_slow{0};
    // Guarded by mutex_, as all below.
    uint64_t probed_ns = 0, rest_ns = 0, resting_until_ns = 0;
    uint64_t since_tick = 0;  // Bytes that it was given.
    // It was given a quarter of its room between the first of these ticks and the second, and less
    // than that since.
    uint32_t sure_tick = 0, next_sure_tick = 0;
    uint64_t since_sure = 0;  // Bytes that it was given since next_sure_tick.
  };
  // One entry on its way, and whoever waits for it.
  struct Flight {
    std::mutex mutex;
    std::condition_variable landed;
    bool over = false;
    Loaded loaded;
  };
  struct Trip {  // One entry of a load().
    size_t at = 0;
    LevelMask left = 0;
    std::shared_ptr<Payload> room;
    std::shared_ptr<Flight> flight;
    uint64_t purges = 0;  // As the stack's when it began.
  };

  uint64_t now_ns() const noexcept { return clock_.now_ns(); }
  void get(std::span<const Wanted> wanted, std::vector<Trip>& trips, std::vector<Loaded>& loaded,
           uint64_t until_ns);
  // Until the batch is finished. False: it is `until_ns`, or none of its items has ended for `silence_ns`.
  static bool wait_while_moving(TierBatch& batch, uint64_t begun_ns, uint64_t silence_ns,
                                uint64_t until_ns);
  // How long a level may load without a word before it counts as stalled.
  uint64_t silence_ns(size_t level, uint64_t first_bytes) const;
  void land(const Wanted& wanted, const Trip& trip, const Loaded& loaded);
  void touch_down(const EntryKey& key, Flight& flight, const Loaded& loaded) noexcept;
  // Under mutex_.
  void put(const StoreItem& item, LevelMask levels, std::atomic<uint64_t> Level::* counter);
  LevelPurged purge_level(size_t level, const Purge& what, uint64_t until_ns);
  // Whether what was loaded since may be put: no purge has begun or ended, and none is under way
  // for it. Under mutex_.
  bool may_promote(const EntryKey& key, uint64_t purges) const noexcept;
  void settled(size_t level, const EntryKey& key, TierOutcome outcome);
  void touched(size_t level, const EntryKey& key, TierOutcome outcome);
  uint32_t tick();  // Under mutex_.
  static uint64_t room_of(const Level& level) noexcept;
  // Notes that the level was given so many bytes. Under mutex_.
  void given(Level& level, uint64_t bytes) noexcept;
  // The levels that had the entry, and were given so much since that they may have evicted it. Under mutex_.
  LevelMask perhaps_lost(const EntryKey& key) const noexcept;
  LevelMask awake_levels() const;
  void rest(size_t level);
  void wake(size_t level);
  void probe(uint32_t level, const Wanted& wanted);
  void fetch_ahead();

  StackOptions options_;
  const Clock& clock_;
  std::shared_ptr<TransferArena> arena_;  // Null: none was asked for.
  std::vector<std::unique_ptr<Level>> levels_;

  mutable std::mutex mutex_;
  std::vector<Speed> speeds_;  // Guarded by mutex_, as all below.
  Average token_ns_;
  Sightings sightings_;
  uint32_t tick_ = 1;  // Levels are told of an entry's use once in each.
  uint64_t tick_ns_ = 0;
  std::unordered_map<EntryKey, std::shared_ptr<Flight>> flights_;
  std::deque<Wanted> ahead_;
  uint64_t purges_ = 0;  // Begun and ended.
  std::vector<Purge> purging_;
  bool fetching_ = false;
  bool closing_ = false;
  std::condition_variable changed_;
  uint64_t prefetches_ = 0, dropped_prefetches_ = 0, probes_ = 0, rests_ = 0;
  std::atomic<uint64_t> queries_{0}, late_queries_{0}, shared_loads_{0}, crowded_{0};
  std::thread ahead_thread_;
};

}  // namespace stemma::tier
