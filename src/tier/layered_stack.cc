#include "tier/layered_stack.h"

#include <algorithm>
#include <bit>
#include <new>

#include "tier/transfer_arena.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// A tier works on about so many entries at a time.
constexpr uint64_t kEntriesAtOnce = 8;
// What a level knows of an entry without reading it may already show that it is another one.
bool may_be(const EntryInfo& known, const EntryInfo& wanted) noexcept {
  const bool size = known.bytes == 0 || wanted.bytes == 0 || known.bytes == wanted.bytes;
  const bool kind = known.end == 0 || (known.begin == wanted.begin && known.end == wanted.end &&
                                       known.layout == wanted.layout);
  return size && kind;
}

}  // namespace

LayeredStack::LayeredStack(StackOptions&& options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : Clock::monotonic()),
      sightings_(options_.sightings) {}

Result<std::unique_ptr<TierStack>> TierStack::create(StackOptions options) {
  if (options.levels.empty() || options.levels.size() > kMostLevels) {
    return Error(Errc::invalid_argument, "a stack has 1 to 8 tiers",
                 static_cast<uint32_t>(options.levels.size()));
  }
  for (const StackLevel& level : options.levels) {
    if (level.tier == nullptr) return Error(Errc::invalid_argument, "a level has no tier");
  }
  try {
    auto stack = std::make_unique<LayeredStack>(std::move(options));
    if (!stack->take_arena()) {
      return Error(Errc::out_of_memory, "no memory for the stack's transfer_bytes");
    }
    stack->start();
    return std::unique_ptr<TierStack>(std::move(stack));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a stack of tiers");
  }
}

bool LayeredStack::take_arena() {
  if (options_.transfer_bytes == 0) return true;
  arena_ = TransferArena::create(options_.transfer_bytes, options_.hook);
  return arena_ != nullptr;
}

std::shared_ptr<Payload> LayeredStack::make_payload(uint64_t bytes) {
  std::shared_ptr<Payload> made = Payload::make(bytes, arena_);
  if (arena_ != nullptr && made != nullptr && made->data.get_deleter().arena == nullptr) {
    crowded_.fetch_add(1, std::memory_order_relaxed);
  }
  return made;
}

void LayeredStack::start() {
  for (StackLevel& given : options_.levels) {
    auto level = std::make_unique<Level>();
    level->tier = std::move(given.tier);
    level->options.write = given.write;
    level->options.promote = given.promote;
    const double per_byte =
        given.bytes_per_second == 0 ? 0 : 1e9 / static_cast<double>(given.bytes_per_second);
    speeds_.emplace_back(static_cast<double>(given.latency_ns), per_byte);
    const size_t number = levels_.size();
    levels_.push_back(std::move(level));
    levels_.back()->writer = std::make_unique<Writer>(
        *levels_.back()->tier,
        Writer::Options{.queue_bytes = options_.queue_bytes, .deadline_ns = options_.store_ns},
        [this, number](const EntryKey& key, TierOutcome outcome) { settled(number, key, outcome); },
        [this, number](const EntryKey& key, TierOutcome outcome) {
          touched(number, key, outcome);
        });
  }
  tick_ns_ = now_ns();
  ahead_thread_ = std::thread([this] { fetch_ahead(); });
}

LayeredStack::~LayeredStack() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (ahead_thread_.joinable()) ahead_thread_.join();
  for (auto& level : levels_) level->writer.reset();
  levels_.clear();  // Tiers end what is under way.
}

// ---- Finding ----

std::vector<LevelMask> LayeredStack::where(std::span<const Wanted> wanted) {
  std::vector<LevelMask> found(wanted.size());
  if (wanted.empty()) return found;
  queries_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t until_ns = deadline_after(monotonic_ns(), options_.query_ns);
  std::vector<std::shared_ptr<TierBatch>> batches(levels_.size());
  // Written by whichever thread ends a batch, which may be after nobody waits any more.
  auto took_ns = std::make_shared<std::vector<std::atomic<uint64_t>>>(levels_.size());
  const uint64_t begin_ns = now_ns();
  const LevelMask awake = awake_levels();
  for (size_t l = 0; l < levels_.size(); ++l) {
    if ((awake & LevelMask{1} << l) == 0) continue;
    auto made = TierBatch::make(TierOp::contains, wanted.size());
    if (!made) continue;
    batches[l] = *std::move(made);
    for (size_t i = 0; i < wanted.size(); ++i) {
      batches[l]->items()[i].key = wanted[i].key;
      batches[l]->items()[i].info = wanted[i].info;
    }
    batches[l]->deadline_ns = until_ns;
    batches[l]->on_done = [took_ns, l, begin_ns, clock = &clock_](TierBatch&) {
      (*took_ns)[l].store(elapsed_ns(begin_ns, clock->now_ns()) + 1, std::memory_order_release);
    };
    levels_[l]->tier->submit(batches[l]);
  }
  bool all = true;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (batches[l] == nullptr || !batches[l]->wait(until_ns)) {
      if (batches[l] != nullptr) {
        batches[l]->cancel();
        rest(l);
      }
      batches[l].reset();
      all = false;
      continue;
    }
    uint64_t late = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const TierItem& item = batches[l]->items()[i];
      const bool same = may_be(item.info, wanted[i].info);
      if (item.outcome == TierOutcome::done && same) found[i] |= LevelMask{1} << l;
      all = all && (item.outcome == TierOutcome::done || item.outcome == TierOutcome::absent);
      late += item.outcome == TierOutcome::late ? 1U : 0U;
    }
    if (late == wanted.size()) {
      rest(l);
    } else {
      wake(l);
    }
  }
  if (!all) late_queries_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (batches[l] == nullptr) continue;
    if (const uint64_t took = (*took_ns)[l].load(std::memory_order_acquire); took != 0)
      speeds_[l].answered(took - 1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (batches[l]->items()[i].outcome == TierOutcome::absent)
        sightings_.clear_stored(wanted[i].key, LevelMask{1} << l);
    }
  }
  return found;
}

LevelMask LayeredStack::awake_levels() const {
  const uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  LevelMask awake = 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (now >= levels_[l]->resting_until_ns) awake |= LevelMask{1} << l;
  }
  return awake;
}

void LayeredStack::rest(size_t level) {
  const uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Level& tired = *levels_[level];
  if (now < tired.resting_until_ns) return;  // Somebody else noticed it, too.
  const uint64_t longest = options_.rest_ns > kNever / 64 ? kNever : options_.rest_ns * 64;
  const uint64_t twice = deadline_after(tired.rest_ns, tired.rest_ns);
  tired.rest_ns = std::clamp(twice, options_.rest_ns, longest);
  tired.resting_until_ns = deadline_after(now, tired.rest_ns);
  ++rests_;
}

void LayeredStack::wake(size_t level) {
  const std::lock_guard lock(mutex_);
  levels_[level]->rest_ns = 0;
}

LoadChoice LayeredStack::choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) {
  std::vector<LoadCandidate> candidates;
  for (size_t i = 0; i < wanted.size() && levels[i] != 0; ++i) {
    candidates.push_back(
        {static_cast<uint32_t>(std::countr_zero(levels[i])), wanted[i].tokens, wanted[i].room()});
  }
  LoadChoice choice;
  {
    const std::lock_guard lock(mutex_);
    choice = worth_loading(candidates, speeds_, token_ns_.value(), options_.caution);
  }
  for (size_t i = choice.count; i < candidates.size(); ++i)
    levels_[candidates[i].level]->too_slow.fetch_add(1, std::memory_order_relaxed);
  if (choice.count < candidates.size()) {
    probe(candidates[choice.count].level, wanted[choice.count]);
  }
  return choice;
}

void LayeredStack::prefilled(uint32_t tokens, uint64_t ns) {
  if (tokens == 0) return;
  const std::lock_guard lock(mutex_);
  token_ns_.add(static_cast<double>(ns) / tokens);
}

// A level that is never asked would never be found fast again.
void LayeredStack::probe(uint32_t level, const Wanted& wanted) {
  const uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  uint64_t& last = levels_[level]->probed_ns;
  if (last != 0 && now - last < options_.probe_ns) return;
  last = now;
  if (ahead_.size() >= options_.prefetch_entries) return;
  ++probes_;
  ahead_.push_back(wanted);
  changed_.notify_all();
}

// ---- Loading ----

std::vector<Loaded> LayeredStack::load(std::span<const Wanted> wanted,
                                       std::span<const LevelMask> levels, uint64_t wait_ns) {
  std::vector<Loaded> loaded(wanted.size());
  const uint64_t until_ns = deadline_after(monotonic_ns(), std::min(wait_ns, options_.load_ns));
  std::vector<Trip> own, others;
  {
    const std::lock_guard lock(mutex_);
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
    get(wanted, own, loaded, until_ns);
  } catch (...) {
    // Without memory: whoever waits for these, or comes next, must not wait for nothing.
    for (const Trip& trip : own) touch_down(wanted[trip.at].key, *trip.flight, {});
    throw;
  }
  for (const Trip& trip : others) {
    std::unique_lock lock(trip.flight->mutex);
    wait_until(trip.flight->landed, lock, until_ns, [&] { return trip.flight->over; });
    loaded[trip.at] = trip.flight->loaded;
  }
  return loaded;
}

bool LayeredStack::wait_while_moving(TierBatch& batch, uint64_t begun_ns, uint64_t silence_ns,
                                     uint64_t until_ns) {
  size_t left = batch.items().size();
  uint64_t heard_ns = begun_ns;
  // Often enough to notice what arrives.
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
  const std::lock_guard lock(mutex_);
  const double expected = std::min(2 * speeds_[level].estimate_ns(first_bytes), 1e18);
  return deadline_after(options_.query_ns, static_cast<uint64_t>(expected));
}

// Level by level: each takes, in one batch, what it is the fastest to have of what is still missing.
void LayeredStack::get(std::span<const Wanted> wanted, std::vector<Trip>& trips,
                       std::vector<Loaded>& loaded, uint64_t until_ns) {
  struct Part {
    std::shared_ptr<TierBatch> batch;
    std::vector<Trip*> trips;
    uint64_t bytes = 0;
    uint64_t largest = 0;  // Of its entries, in bytes.
    std::shared_ptr<std::atomic<uint64_t>> took_ns;
  };
  const uint64_t entered_ns = monotonic_ns();
  std::vector<Trip*> missing;
  for (Trip& trip : trips) {
    trip.room = make_payload(wanted[trip.at].room());
    if (trip.room == nullptr) trip.left = 0;
    missing.push_back(&trip);
  }
  while (!missing.empty() && monotonic_ns() < until_ns) {
    std::vector<Part> parts(levels_.size());
    for (Trip* trip : missing) {
      if (trip->left != 0)
        parts[static_cast<size_t>(std::countr_zero(trip->left))].trips.push_back(trip);
    }
    missing.clear();
    const uint64_t begin_ns = now_ns();
    const uint64_t begun_ns = monotonic_ns();
    for (size_t l = 0; l < parts.size(); ++l) {
      Part& part = parts[l];
      if (part.trips.empty()) continue;
      auto made = TierBatch::make(TierOp::get, part.trips.size());
      if (!made) continue;
      part.batch = *std::move(made);
      auto rooms = std::make_shared<std::vector<std::shared_ptr<Payload>>>();
      for (size_t i = 0; i < part.trips.size(); ++i) {
        const Wanted& one = wanted[part.trips[i]->at];
        TierItem& item = part.batch->items()[i];
        item.key = one.key;
        item.info = one.info;
        item.info.words = 0;
        item.into = part.trips[i]->room->span();
        rooms->push_back(part.trips[i]->room);
        part.bytes += one.room();
        part.largest = std::max(part.largest, one.room());
      }
      part.batch->keep = rooms;
      part.batch->deadline_ns = until_ns;
      part.took_ns = std::make_shared<std::atomic<uint64_t>>(0);
      part.batch->on_done = [took = part.took_ns, begin_ns, clock = &clock_](TierBatch&) {
        took->store(elapsed_ns(begin_ns, clock->now_ns()) + 1, std::memory_order_release);
      };
      levels_[l]->tier->submit(part.batch);
    }
    for (size_t l = 0; l < parts.size(); ++l) {
      Part& part = parts[l];
      if (part.batch == nullptr) continue;
      // Tiers work on several entries at a time, so the first may arrive late.
      const uint64_t first_bytes = std::min(part.bytes, kEntriesAtOnce * part.largest);
      if (!wait_while_moving(*part.batch, begun_ns, silence_ns(l, first_bytes), until_ns)) {
        // The rooms stay the batch's: what arrives now is nobody's.
        part.batch->cancel();
        if (monotonic_ns() - entered_ns >= options_.query_ns) rest(l);  // Not where time was short.
        levels_[l]->misses.fetch_add(part.trips.size(), std::memory_order_relaxed);
        // Another level may have it.
        for (Trip* trip : part.trips) {
          trip->left &= ~(LevelMask{1} << l);
          if (trip->left == 0) continue;
          trip->room = make_payload(wanted[trip->at].room());
          if (trip->room != nullptr) missing.push_back(trip);
        }
        const std::lock_guard lock(mutex_);
        speeds_[l].moved(first_bytes, elapsed_ns(begin_ns, now_ns()));
        continue;
      }
      bool all = true;
      for (size_t i = 0; i < part.trips.size(); ++i) {
        Trip& trip = *part.trips[i];
        const TierItem& item = part.batch->items()[i];
        const uint64_t exactly = wanted[trip.at].info.bytes;
        if (item.outcome == TierOutcome::done && (exactly == 0 || item.info.bytes == exactly)) {
          trip.room->size = item.info.bytes;
          levels_[l]->hits.fetch_add(1, std::memory_order_relaxed);
          levels_[l]->hit_bytes.fetch_add(item.info.bytes, std::memory_order_relaxed);
          loaded[trip.at] = {trip.room, item.info, static_cast<uint32_t>(l)};
          continue;
        }
        all = false;
        levels_[l]->misses.fetch_add(1, std::memory_order_relaxed);
        trip.left &= ~(LevelMask{1} << l);
        if (trip.left != 0) missing.push_back(&trip);
      }
      const uint64_t took = part.took_ns->load(std::memory_order_acquire);
      if (all && took != 0) {
        const std::lock_guard lock(mutex_);
        speeds_[l].moved(part.bytes, took - 1);
      }
    }
  }
  for (const Trip& trip : trips) land(wanted[trip.at], trip, loaded[trip.at]);
}

// Nothing happens to one that is over.
void LayeredStack::touch_down(const EntryKey& key, Flight& flight, const Loaded& loaded) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second.get() == &flight) flights_.erase(found);
  }
  const std::lock_guard lock(flight.mutex);
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
  const std::lock_guard lock(mutex_);
  if (!may_promote(wanted.key, trip.purges)) return;
  // It need not be put where it came from.
  sightings_.set_stored(wanted.key, LevelMask{1} << loaded.level, tick_);
  if (up != 0) put(item, up, &Level::promoted);
}

void LayeredStack::prefetch(std::span<const Wanted> wanted) {
  const std::lock_guard lock(mutex_);
  for (const Wanted& one : wanted) {
    if (ahead_.size() >= options_.prefetch_entries) {
      ++dropped_prefetches_;
      continue;
    }
    ++prefetches_;
    ahead_.push_back(one);
  }
  changed_.notify_all();
}

void LayeredStack::fetch_ahead() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !ahead_.empty(); });
    if (closing_) return;
    std::deque<Wanted> taken;
    taken.swap(ahead_);
    fetching_ = true;
    lock.unlock();
    try {
      const std::vector<Wanted> some(taken.begin(), taken.end());
      std::vector<LevelMask> levels = where(some);
      // What the first level has is as near as it gets.
      for (LevelMask& mask : levels) {
        if ((mask & 1U) != 0) mask = 0;
      }
      (void)load(some, levels, kNever);
    } catch (const std::bad_alloc&) {
      // Then it is not there ahead of time.
    }
    lock.lock();
    fetching_ = false;
    changed_.notify_all();
  }
}

}  // namespace stemma::tier
