#include "tier/layered_stack.h"

#include <algorithm>
#include <bit>
#include <new>

#include "tier/transfer_arena.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// Whether the wanted entry can have this description; some levels know it without reading.
bool may_be(const EntryInfo& known, const EntryInfo& wanted) noexcept {
  const bool size = known.bytes == 0 || wanted.bytes == 0 || known.bytes == wanted.bytes;
  const bool range =
      known.end == 0 || wanted.end == 0 || (known.begin == wanted.begin && known.end == wanted.end);
  return size && range && (known.end == 0 || known.layout == wanted.layout);
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
  const base::Lock lock(mutex_);
  const uint64_t longest = options_.rest_ns > kNever / 64 ? kNever : options_.rest_ns * 64;
  const Breaker::Options patience{.first_ns = options_.rest_ns, .longest_ns = longest};
  for (StackLevel& given : options_.levels) {
    auto level = std::make_unique<Level>(patience);
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
        [this, number](const StoreItem& item, TierOutcome outcome) {
          settled(number, item, outcome);
        },
        [this, number](const EntryKey& key, TierOutcome outcome) {
          touched(number, key, outcome);
        });
  }
  tick_ns_ = now_ns();
  ahead_thread_ = std::thread([this] { fetch_ahead(); });
}

LayeredStack::~LayeredStack() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  if (ahead_thread_.joinable()) ahead_thread_.join();
  for (auto& level : levels_) level->writer.reset();
  levels_.clear();  // Tiers end their running batches.
}

// ---- Finding ----

std::vector<LevelMask> LayeredStack::where(std::span<const Wanted> wanted) {
  std::vector<LevelMask> found(wanted.size());
  if (wanted.empty()) return found;
  queries_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t until_ns = deadline_after(monotonic_ns(), options_.query_ns);
  std::vector<std::shared_ptr<TierBatch>> batches(levels_.size());
  // Written by the thread that ends a batch, perhaps after the caller stopped waiting.
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
  const base::Lock lock(mutex_);
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

std::vector<LevelMask> LayeredStack::where_now(std::span<const Wanted> wanted) {
  std::vector<LevelMask> found(wanted.size());
  if (wanted.empty()) return found;
  queries_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t until_ns = deadline_after(monotonic_ns(), options_.query_ns);
  const LevelMask awake = awake_levels();
  for (size_t l = 0; l < levels_.size(); ++l) {
    const LevelMask bit = LevelMask{1} << l;
    // A shared level would be asked over a network.
    if ((awake & bit) == 0 || levels_[l]->tier->traits().shared) continue;
    auto made = TierBatch::make(TierOp::contains, wanted.size());
    if (!made) continue;
    const std::shared_ptr<TierBatch> batch = *std::move(made);
    for (size_t i = 0; i < wanted.size(); ++i) {
      batch->items()[i].key = wanted[i].key;
      batch->items()[i].info = wanted[i].info;
    }
    batch->deadline_ns = until_ns;
    levels_[l]->tier->submit(batch);
    if (!batch->finished()) {
      batch->cancel();
      continue;
    }
    const base::Lock lock(mutex_);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const TierItem& item = batch->items()[i];
      if (item.outcome == TierOutcome::done && may_be(item.info, wanted[i].info)) found[i] |= bit;
      if (item.outcome == TierOutcome::absent) sightings_.clear_stored(wanted[i].key, bit);
    }
  }
  return found;
}

LevelMask LayeredStack::awake_levels() const {
  const uint64_t now = now_ns();
  const base::Lock lock(mutex_);
  LevelMask awake = 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (levels_[l]->breaker.lets_through(now)) awake |= LevelMask{1} << l;
  }
  return awake;
}

void LayeredStack::rest(size_t level) {
  const uint64_t now = now_ns();
  const base::Lock lock(mutex_);
  Breaker& breaker = levels_[level]->breaker;
  if (!breaker.lets_through(now)) return;  // Another thread has noticed it already.
  breaker.fail(now);
  ++rests_;
}

void LayeredStack::wake(size_t level) {
  const uint64_t now = now_ns();
  const base::Lock lock(mutex_);
  // An answer to an earlier query does not end the rest.
  Breaker& breaker = levels_[level]->breaker;
  if (breaker.lets_through(now)) breaker.succeed();
}

LoadChoice LayeredStack::choose(std::span<const Wanted> wanted, std::span<const LevelMask> levels) {
  std::vector<LoadCandidate> candidates;
  for (size_t i = 0; i < wanted.size() && levels[i] != 0; ++i) {
    candidates.push_back(
        {static_cast<uint32_t>(std::countr_zero(levels[i])), wanted[i].tokens, wanted[i].room()});
  }
  LoadChoice choice;
  {
    const base::Lock lock(mutex_);
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
  const base::Lock lock(mutex_);
  token_ns_.add(static_cast<double>(ns) / tokens);
}

// A level that is never asked would never be found to be fast again.
void LayeredStack::probe(uint32_t level, const Wanted& wanted) {
  const uint64_t now = now_ns();
  const base::Lock lock(mutex_);
  uint64_t& last = levels_[level]->probed_ns;
  if (last != 0 && now - last < options_.probe_ns) return;
  last = now;
  if (ahead_.size() >= options_.prefetch_entries) return;
  ++probes_;
  ahead_.push_back(wanted);
  changed_.notify_all();
}

// ---- Fetching ahead ----

void LayeredStack::prefetch(std::span<const Wanted> wanted) {
  const base::Lock lock(mutex_);
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
  base::Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return closing_ || !ahead_.empty(); });
    if (closing_) return;
    std::deque<Wanted> taken;
    taken.swap(ahead_);
    fetching_ = true;
    lock.unlock();
    try {
      const std::vector<Wanted> some(taken.begin(), taken.end());
      std::vector<LevelMask> levels = where(some);
      // Entries of the first level are as near as they get.
      for (LevelMask& mask : levels) {
        if ((mask & 1U) != 0) mask = 0;
      }
      (void)load(some, levels, kNever, {});
    } catch (const std::bad_alloc&) {
      // It is then not fetched ahead of time.
    }
    lock.lock();
    fetching_ = false;
    changed_.notify_all();
  }
}

}  // namespace stemma::tier
