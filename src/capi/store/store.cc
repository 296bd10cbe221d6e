#include "capi/store/store.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "tier/object/envelope.h"
#include "tier/wait_until.h"

namespace stemma::capi::store {

using tier::LevelMask;
using tier::monotonic_ns;
using tier::object::Space;

namespace {

// The size of a piece: bytes for a put or get, items for any batch.
constexpr uint64_t kPieceBytes = 8U << 20U;
constexpr size_t kPieceItems = 64;
constexpr size_t kQuestionItems = 1024;
// The number of keys that lookup() queries together: such a batch stays in the CPU's cache.
constexpr size_t kLookupItems = 256;
constexpr uint64_t kMostTimeoutNs = 3'600'000'000'000;
constexpr uint32_t kMostThreads = 64;

enum LaneOf : uint8_t { kLoads, kStores, kQuestions, kLanes };

LaneOf lane_of(Op op) noexcept {
  switch (op) {
    case Op::get: return kLoads;
    case Op::put:
    case Op::remove: return kStores;
    default: return kQuestions;
  }
}

std::deque<Piece> cut(const std::shared_ptr<Batch>& batch, size_t count) {
  const Op op = batch->request().op;
  const bool moves = op == Op::put || op == Op::get;
  std::deque<Piece> pieces;
  for (size_t first = 0; first < count;) {
    size_t next = first;
    uint64_t bytes = 0;
    const size_t end = std::min(count, first + (moves ? kPieceItems : kQuestionItems));
    do {
      bytes += batch->items()[next++].bytes;
    } while (next < end && (!moves || bytes + batch->items()[next].bytes <= kPieceBytes));
    pieces.push_back({batch, first, next - first});
    first = next;
  }
  return pieces;
}

Result<void> check(const Options& options) {
  const auto invalid = [](const char* what, uint32_t value = Error::kNoValue) {
    return Error(Errc::invalid_argument, what, value);
  };
  for (const uint32_t threads : {options.load_threads, options.store_threads}) {
    if (threads == 0 || threads > kMostThreads) {
      return invalid("load_threads and store_threads are 1 to 64", threads);
    }
  }
  if (options.most_batches == 0) return invalid("options.most_batches is 0");
  if (options.most_items == 0) return invalid("options.most_items is 0");
  if (options.put_bytes == 0) return invalid("options.put_bytes is 0");
  if (options.timeout_ns == 0) return invalid("options.timeout_ns is 0");
  return {};
}

}  // namespace

struct Store::Shared {
  Shared(tier::TierStack& under, std::shared_ptr<const void> kept, std::shared_ptr<Ledger> books)
      : keep(std::move(kept)), stack(under), ledger(std::move(books)), work(under, ledger) {}

  // A thread of a lane. It lives as long as it must, even after its store is gone.
  static void run(std::shared_ptr<Shared> shared, LaneOf lane) noexcept {
    while (std::optional<Piece> piece = shared->lanes[lane].take()) shared->work.run(*piece);
    shared->leave();
  }
  static void watch(std::shared_ptr<Shared> shared) noexcept {
    while (!shared->ledger->is_closed()) {
      shared->ledger->wait_for_deadlines(shared->ledger->expire(monotonic_ns()));
    }
    shared->leave();
  }
  void leave() noexcept {
    const base::Lock lock(mutex);
    if (--running == 0) left.notify_all();
  }

  const std::shared_ptr<const void> keep;
  tier::TierStack& stack;
  const std::shared_ptr<Ledger> ledger;
  Work work;
  std::array<Lane, kLanes> lanes;
  base::WaitMutex mutex;
  base::Condition left;
  uint32_t running STEMMA_GUARDED_BY(mutex) = 0;
};

Result<std::unique_ptr<Store>> Store::create(tier::TierStack& stack,
                                             std::shared_ptr<const void> keep,
                                             const Options& options) try {
  STEMMA_TRY_VOID(check(options));
  STEMMA_TRY(std::shared_ptr<Ledger> ledger,
             Ledger::make({options.most_batches, options.most_items, options.put_bytes}));
  auto shared = std::make_shared<Shared>(stack, std::move(keep), std::move(ledger));
  std::unique_ptr<Store> store(new Store(std::move(shared), options));
  STEMMA_TRY_VOID(store->start(options));
  return store;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a store");
}

Store::Store(std::shared_ptr<Shared> shared, const Options& options)
    : shared_(std::move(shared)), options_(options) {}

Result<void> Store::start(const Options& options) {
  threads_.reserve(options.load_threads + options.store_threads + 2);
  const auto one = [&](auto&& thread) {
    {
      const base::Lock lock(shared_->mutex);
      ++shared_->running;
    }
    try {
      threads_.emplace_back(std::forward<decltype(thread)>(thread));
    } catch (...) {
      shared_->leave();
      throw;
    }
  };
  try {
    one([shared = shared_] { Shared::watch(shared); });
    one([shared = shared_] { Shared::run(shared, kQuestions); });
    for (uint32_t i = 0; i < options.load_threads; ++i) {
      one([shared = shared_] { Shared::run(shared, kLoads); });
    }
    for (uint32_t i = 0; i < options.store_threads; ++i) {
      one([shared = shared_] { Shared::run(shared, kStores); });
    }
  } catch (const std::system_error&) {
    return Error(Errc::out_of_memory, "the system gave no thread for a store");
  }
  return {};
}

Store::~Store() { close(0); }

bool Store::close(uint64_t until_ns) {
  shared_->ledger->close();
  for (Lane& lane : shared_->lanes) lane.close();
  bool all = false;
  {
    base::Lock lock(shared_->mutex);
    all = tier::wait_until(shared_->left, lock, until_ns,
                           [&]() STEMMA_REQUIRES(shared_->mutex) { return shared_->running == 0; });
  }
  for (std::thread& thread : threads_) {
    if (all) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  threads_.clear();
  return all;
}

// ---- Namespaces ----

Result<uint32_t> Store::name_space(std::string_view name, uint64_t layout, uint64_t value_bytes) {
  STEMMA_TRY(Space made, Space::make(name, layout, value_bytes));
  const base::Lock lock(mutex_);
  const auto same = [&](const auto& space) { return *space == made; };
  const auto found = std::find_if(spaces_.begin(), spaces_.end(), same);
  const auto number = static_cast<uint32_t>(found - spaces_.begin());
  if (found != spaces_.end()) return number;
  if (spaces_.size() >= kMostSpaces) {
    return Error(Errc::out_of_range, "this store has 4,096 namespaces", kMostSpaces);
  }
  spaces_.push_back(std::make_shared<const Space>(std::move(made)));
  return number;
}

Result<std::shared_ptr<const Space>> Store::space(uint32_t number) const {
  const base::Lock lock(mutex_);
  if (number < spaces_.size()) return spaces_[number];
  return Error(Errc::invalid_argument, "name_space is no namespace of this store", number);
}

// ---- Batches ----

Ledger& Store::ledger() noexcept { return *shared_->ledger; }

Result<stemma_batch> Store::submit(Request&& request) {
  const uint64_t timeout_ns = request.timeout_ns != 0 ? request.timeout_ns : options_.timeout_ns;
  const uint64_t deadline_ns = monotonic_ns() + std::min(timeout_ns, kMostTimeoutNs);
  const LaneOf lane = lane_of(request.op);
  STEMMA_TRY(const Ledger::Opened opened, ledger().open(std::move(request), deadline_ns));
  const stemma_batch number = opened.batch->number();
  size_t begins = 0;  // The number of items that begin.
  try {
    shared_->lanes[lane].add(cut(opened.batch, opened.admitted));
    begins = opened.admitted;
  } catch (const std::bad_alloc&) {
    // There is no memory for its place in the queue.
  }
  for (size_t i = begins; i < opened.batch->items().size(); ++i) {
    opened.batch->end(i, Status::busy);
  }
  return number;
}

void Store::lookup(const Space& space, std::span<const std::span<const uint8_t>> keys,
                   bool leading_only, std::span<LevelMask> levels) {
  uint64_t found = 0;
  size_t asked = 0;
  while (asked < keys.size()) {
    const auto some = keys.subspan(asked, std::min(kLookupItems, keys.size() - asked));
    const std::vector<LevelMask> masks = shared_->work.look(space, some);
    std::copy(masks.begin(), masks.end(), levels.begin() + static_cast<std::ptrdiff_t>(asked));
    const auto absent = std::count(masks.begin(), masks.end(), LevelMask{0});
    found += some.size() - static_cast<size_t>(absent);
    asked += some.size();
    if (leading_only && absent != 0) break;
  }
  lookups_.fetch_add(asked, std::memory_order_relaxed);
  lookup_found_.fetch_add(found, std::memory_order_relaxed);
}

std::vector<tier::LevelPurged> Store::forget(const Space& space, bool all_layouts,
                                             uint64_t until_ns) {
  Purge what{.owner = space.owner()};
  if (!all_layouts) what.layout = space.tier_layout();
  return shared_->stack.purge(what, until_ns);
}

bool Store::flush(uint64_t until_ns) { return shared_->stack.flush(until_ns); }

Stats Store::stats() const {
  Stats stats;
  stats.counts = shared_->ledger->counts();
  stats.mismatched = shared_->work.mismatched();
  stats.lookups = lookups_.load(std::memory_order_relaxed);
  stats.lookup_found = lookup_found_.load(std::memory_order_relaxed);
  const base::Lock lock(mutex_);
  stats.spaces = spaces_;
  return stats;
}

tier::StackStats Store::stack_stats() const { return shared_->stack.stats(); }
tier::TierStack& Store::stack() noexcept { return shared_->stack; }

}  // namespace stemma::capi::store
