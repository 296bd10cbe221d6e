// LayeredStack: how entries are loaded.
#include <algorithm>
#include <bit>

#include "tier/layered_stack.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// A tier works on about this many entries at a time.
constexpr uint64_t kEntriesAtOnce = 8;
// Parts under way at a time: while one is taken over, the level already works on the next.
constexpr size_t kPartsAtOnce = 4;

}  // namespace

// The work of one load(). Each missing entry is assigned to the fastest level that has it; each
// level loads its entries in order, in parts. A part is one batch; while the first is waited for,
// the next ones are under way.
class LayeredStack::Loading {
 public:
  Loading(LayeredStack& stack, std::span<const Wanted> wanted, std::vector<Loaded>& loaded,
          uint64_t until_ns, const OnLoaded& on_loaded)
      : stack_(stack),
        wanted_(wanted),
        loaded_(loaded),
        until_ns_(until_ns),
        on_loaded_(on_loaded),
        entered_ns_(monotonic_ns()) {}

  void run(std::vector<Trip>& trips);

 private:
  struct Part {
    size_t level = 0;
    std::vector<Trip*> trips;
    uint64_t bytes = 0;
    uint64_t largest = 0;                             // Of its entries, in bytes.
    uint64_t begin_ns = 0;                            // On the stack's clock.
    uint64_t begun_ns = 0;                            // On the monotonic clock.
    std::shared_ptr<std::atomic<uint64_t>> ended_ns;  // On the stack's clock.
    std::shared_ptr<TierBatch> batch;                 // Null: it could not be begun.
    bool tried = false;
  };
  // The state of a level since the round began.
  struct OfLevel {
    size_t under_way = 0;  // Parts.
    bool stalled = false;
    bool all = true;  // It had everything it was asked for.
    uint64_t bytes = 0;
    uint64_t begin_ns = 0, end_ns = 0;
    uint64_t heard_ns = 0;  // When its last part ended.
  };

  std::vector<Part> cut(std::span<Trip* const> missing) const;
  void round(std::vector<Part>& parts);
  void begin(Part& part);
  bool wait(Part& part);
  void take(Part& part);
  // The level is stalled: other levels may try these entries.
  void give_up(Part& part);
  // This level does not have the entry.
  void miss(Trip& trip, size_t level);
  void land(Trip& trip);

  LayeredStack& stack_;
  const std::span<const Wanted> wanted_;
  std::vector<Loaded>& loaded_;
  const uint64_t until_ns_;
  const OnLoaded& on_loaded_;
  const uint64_t entered_ns_;
  OfLevel of_[kMostLevels];
  std::vector<Trip*> missing_;  // For the next round.
};

void LayeredStack::Loading::run(std::vector<Trip>& trips) {
  for (Trip& trip : trips) missing_.push_back(&trip);
  while (!missing_.empty() && monotonic_ns() < until_ns_) {
    std::vector<Part> parts = cut(missing_);
    missing_.clear();
    round(parts);
  }
  for (Trip* trip : missing_) land(*trip);
}

// Cuts parts of at most load_part_bytes, in the order of their first entries.
std::vector<LayeredStack::Loading::Part> LayeredStack::Loading::cut(
    std::span<Trip* const> missing) const {
  constexpr size_t kNone = ~size_t{0};
  std::vector<Part> parts;
  size_t open[kMostLevels];
  std::ranges::fill(open, kNone);
  for (Trip* const trip : missing) {
    const auto level = static_cast<size_t>(std::countr_zero(trip->left));
    const uint64_t bytes = wanted_[trip->at].room();
    size_t& at = open[level];
    if (at == kNone || parts[at].bytes + bytes > stack_.options_.load_part_bytes) {
      at = parts.size();
      parts.emplace_back();
      parts[at].level = level;
    }
    parts[at].trips.push_back(trip);
    parts[at].bytes += bytes;
    parts[at].largest = std::max(parts[at].largest, bytes);
  }
  return parts;
}

void LayeredStack::Loading::round(std::vector<Part>& parts) {
  std::ranges::fill(of_, OfLevel());
  for (size_t i = 0; i < parts.size(); ++i) {
    // Each level has work from the start.
    for (Part& next : std::span(parts).subspan(i)) {
      if (!next.tried && of_[next.level].under_way < kPartsAtOnce) begin(next);
    }
    Part& part = parts[i];
    --of_[part.level].under_way;
    if (part.batch == nullptr || !wait(part)) {
      give_up(part);
    } else {
      take(part);
    }
    part = Part();  // Its batch keeps memory in use.
  }
  const base::Lock lock(stack_.mutex_);
  for (size_t l = 0; l < stack_.levels_.size(); ++l) {
    if (of_[l].bytes != 0 && of_[l].all) {
      stack_.speeds_[l].moved(of_[l].bytes, elapsed_ns(of_[l].begin_ns, of_[l].end_ns));
    }
  }
}

void LayeredStack::Loading::begin(Part& part) {
  OfLevel& level = of_[part.level];
  part.tried = true;
  ++level.under_way;
  // A caller that found entries before a level stalled may load them in several steps.
  const bool rests = (stack_.awake_levels() & LevelMask{1} << part.level) == 0;
  if (level.stalled || rests || monotonic_ns() >= until_ns_) return;
  std::erase_if(part.trips, [this](Trip* trip) {
    if (trip->room == nullptr) trip->room = stack_.make_payload(wanted_[trip->at].room());
    if (trip->room != nullptr) return false;
    land(*trip);  // There is no memory for it.
    return true;
  });
  auto made = TierBatch::make(TierOp::get, part.trips.size());
  if (!made || part.trips.empty()) return;
  part.batch = *std::move(made);
  auto rooms = std::make_shared<std::vector<std::shared_ptr<Payload>>>();
  for (size_t i = 0; i < part.trips.size(); ++i) {
    const Wanted& one = wanted_[part.trips[i]->at];
    TierItem& item = part.batch->items()[i];
    item.key = one.key;
    item.info = one.info;
    item.info.words = 0;
    item.into = part.trips[i]->room->span();
    rooms->push_back(part.trips[i]->room);
  }
  part.batch->keep = rooms;
  part.batch->deadline_ns = until_ns_;
  part.begin_ns = stack_.now_ns();
  part.begun_ns = monotonic_ns();
  if (level.begin_ns == 0) level.begin_ns = part.begin_ns;
  part.ended_ns = std::make_shared<std::atomic<uint64_t>>(0);
  part.batch->on_done = [ended = part.ended_ns, clock = &stack_.clock_](TierBatch&) {
    ended->store(clock->now_ns(), std::memory_order_release);
  };
  stack_.levels_[part.level]->tier->submit(part.batch);
}

bool LayeredStack::Loading::wait(Part& part) {
  OfLevel& level = of_[part.level];
  if (level.stalled) return part.batch->finished();
  // Tiers work on several entries at a time, so the first one may arrive late.
  const uint64_t first_bytes = std::min(part.bytes, kEntriesAtOnce * part.largest);
  const uint64_t since_ns = std::max(part.begun_ns, level.heard_ns);
  const uint64_t silence_ns = stack_.silence_ns(part.level, first_bytes);
  if (wait_while_moving(*part.batch, since_ns, silence_ns, until_ns_)) {
    level.heard_ns = monotonic_ns();
    return true;
  }
  level.stalled = true;
  // The level rests only if it had enough time.
  if (monotonic_ns() - entered_ns_ >= stack_.options_.query_ns) stack_.rest(part.level);
  const base::Lock lock(stack_.mutex_);
  stack_.speeds_[part.level].moved(first_bytes, elapsed_ns(part.begin_ns, stack_.now_ns()));
  return false;
}

void LayeredStack::Loading::take(Part& part) {
  OfLevel& of = of_[part.level];
  Level& level = *stack_.levels_[part.level];
  of.bytes += part.bytes;
  // Its last item may have ended just now, before on_done ran.
  const uint64_t ended_ns = part.ended_ns->load(std::memory_order_acquire);
  of.end_ns = std::max(of.end_ns, ended_ns == 0 ? stack_.now_ns() : ended_ns);
  for (size_t i = 0; i < part.trips.size(); ++i) {
    Trip& trip = *part.trips[i];
    const TierItem& item = part.batch->items()[i];
    const uint64_t exactly = wanted_[trip.at].info.bytes;
    if (item.outcome != TierOutcome::done || (exactly != 0 && item.info.bytes != exactly)) {
      of.all = false;
      miss(trip, part.level);
      continue;
    }
    trip.room->size = item.info.bytes;
    level.hits.fetch_add(1, std::memory_order_relaxed);
    level.hit_bytes.fetch_add(item.info.bytes, std::memory_order_relaxed);
    loaded_[trip.at] = {trip.room, item.info, static_cast<uint32_t>(part.level)};
    land(trip);
  }
}

void LayeredStack::Loading::give_up(Part& part) {
  of_[part.level].all = false;
  if (part.batch != nullptr) part.batch->cancel();
  for (Trip* const trip : part.trips) {
    // The batch keeps the room: bytes that still arrive are not used.
    if (part.batch != nullptr) trip->room = nullptr;
    miss(*trip, part.level);
  }
}

void LayeredStack::Loading::miss(Trip& trip, size_t level) {
  stack_.levels_[level]->misses.fetch_add(1, std::memory_order_relaxed);
  trip.left &= ~(LevelMask{1} << level);
  if (trip.left != 0) {
    missing_.push_back(&trip);
  } else {
    land(trip);
  }
}

void LayeredStack::Loading::land(Trip& trip) {
  Loaded& loaded = loaded_[trip.at];
  stack_.land(wanted_[trip.at], trip, loaded);
  // Releases the memory that this load holds.
  trip.flight = nullptr;
  trip.room = nullptr;
  if (!on_loaded_) return;
  on_loaded_(trip.at, loaded);
  loaded.payload = nullptr;
}

// ---- The stack's --------------------------------------------------------------------------------

std::vector<Loaded> LayeredStack::load(std::span<const Wanted> wanted,
                                       std::span<const LevelMask> levels, uint64_t wait_ns,
                                       const OnLoaded& on_loaded) {
  std::vector<Loaded> loaded(wanted.size());
  const uint64_t until_ns = deadline_after(monotonic_ns(), std::min(wait_ns, options_.load_ns));
  std::vector<Trip> own, others;
  {
    const base::Lock lock(mutex_);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (levels[i] == 0) continue;
      auto& flight = flights_[wanted[i].key];
      const bool first = flight == nullptr;
      if (first) flight = std::make_shared<Flight>();
      (first ? own : others).push_back({i, levels[i], nullptr, flight, purges_});
    }
  }
  shared_loads_.fetch_add(others.size(), std::memory_order_relaxed);
  try {
    Loading(*this, wanted, loaded, until_ns, on_loaded).run(own);
  } catch (...) {
    // Out of memory: those who wait for these entries, or ask next, must not wait in vain.
    for (const Trip& trip : own) {
      if (trip.flight != nullptr) touch_down(wanted[trip.at].key, *trip.flight, {});
    }
    throw;
  }
  for (const Trip& trip : others) {
    base::Lock lock(trip.flight->mutex);
    wait_until(trip.flight->landed, lock, until_ns,
               [&]() STEMMA_REQUIRES(trip.flight->mutex) { return trip.flight->over; });
    loaded[trip.at] = trip.flight->loaded;
    lock.unlock();
    if (!on_loaded) continue;
    on_loaded(trip.at, loaded[trip.at]);
    loaded[trip.at].payload = nullptr;
  }
  return loaded;
}

bool LayeredStack::wait_while_moving(TierBatch& batch, uint64_t begun_ns, uint64_t silence_ns,
                                     uint64_t until_ns) {
  size_t left = batch.items().size();
  uint64_t heard_ns = begun_ns;
  // Checks often enough to notice each arrival.
  const uint64_t step_ns = std::max<uint64_t>(silence_ns / 4, 1);
  while (!batch.wait(std::min(until_ns, deadline_after(monotonic_ns(), step_ns)))) {
    const uint64_t now = monotonic_ns();
    const size_t left_now = batch.unfinished();
    if (left_now != left) heard_ns = now;
    left = left_now;
    if (now >= until_ns || now >= deadline_after(heard_ns, silence_ns)) return batch.finished();
  }
  return true;
}

uint64_t LayeredStack::silence_ns(size_t level, uint64_t first_bytes) const {
  const base::Lock lock(mutex_);
  const double expected = std::min(2 * speeds_[level].estimate_ns(first_bytes), 1e18);
  return deadline_after(options_.query_ns, static_cast<uint64_t>(expected));
}

// Does nothing to a flight that is over.
void LayeredStack::touch_down(const EntryKey& key, Flight& flight, const Loaded& loaded) noexcept {
  {
    const base::Lock lock(mutex_);
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second.get() == &flight) flights_.erase(found);
  }
  const base::Lock lock(flight.mutex);
  if (flight.over) return;
  flight.loaded = loaded;
  flight.over = true;
  flight.landed.notify_all();
}

void LayeredStack::land(const Wanted& wanted, const Trip& trip, const Loaded& loaded) {
  touch_down(wanted.key, *trip.flight, loaded);
  if (loaded.payload == nullptr) return;
  LevelMask up = 0;
  for (uint32_t l = 0; l < loaded.level; ++l) {
    if (levels_[l]->options.promote) up |= LevelMask{1} << l;
  }
  EntryInfo info = loaded.info;
  info.words = 0;
  const StoreItem item{.key = wanted.key, .info = info, .payload = loaded.payload, .words = {}};
  const base::Lock lock(mutex_);
  if (!may_promote(wanted.key, trip.purges)) return;
  // The level it came from has it already.
  sightings_.set_stored(wanted.key, LevelMask{1} << loaded.level, tick_);
  if (up != 0) put(item, up, &Level::promoted);
}

}  // namespace stemma::tier
