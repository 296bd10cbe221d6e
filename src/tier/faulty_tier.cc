#include "stemma/tier/faulty_tier.h"
#include "base/lock.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tier/counters.h"
#include "tier/wait_until.h"

namespace stemma {

namespace {

using tier::monotonic_ns;

uint64_t dice(uint64_t a, uint64_t b, uint64_t c) noexcept {
  uint64_t x = a;
  for (const uint64_t add : {b, c}) x = base::mix(x + base::kRandomStep * (add + 1));
  return x;
}

enum class Fault : uint8_t { none, fail, lose_answer, tear, flip, forget, lie };

struct Drawn {
  Fault fault = Fault::none;
  uint64_t where = 0;  // Which bit, how much.
};

Drawn draw(const FaultPlan& plan, TierOp op, uint64_t batch, uint64_t item) noexcept {
  if (batch >= plan.outage_begin && batch < plan.outage_end) return {Fault::fail};
  const uint64_t where = dice(plan.seed, batch * 2 + 1, item);
  uint64_t left = dice(plan.seed, batch * 2, item) % 1000;
  const auto meets = [&left](bool may, uint32_t chance) {
    if (!may) return false;
    if (left < chance) return true;
    left -= chance;
    return false;
  };
  const bool get = op == TierOp::get;
  if (meets(true, plan.fail)) return {Fault::fail};
  if (meets(true, plan.lose_answer)) return {Fault::lose_answer};
  if (meets(get, plan.tear)) return {Fault::tear, where};
  if (meets(get, plan.flip)) return {Fault::flip, where};
  if (meets(op == TierOp::put, plan.forget)) return {Fault::forget};
  if (meets(get, plan.lie)) return {Fault::lie, where};
  return {};
}

}  // namespace

class FaultyTier::Impl {
 public:
  Impl(std::unique_ptr<Tier> inner, const FaultPlan& plan)
      : inner_(std::move(inner)), plan_(plan), thread_([this] { keep_time(); }) {}

  ~Impl() {
    std::vector<Waiting> waiting;
    {
      base::Lock lock(mutex_);
      closing_ = true;
      waiting.swap(waiting_);
      changed_.notify_all();
      changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return inside_ == 0; });
    }
    thread_.join();
    for (Waiting& one : waiting) end_all(one.batch, TierOutcome::cancelled);
    inner_.reset();  // Ends its batches; they still count here.
  }

  void set_plan(const FaultPlan& plan) {
    const base::Lock lock(mutex_);
    plan_ = plan;
    batches_ = 0;
    for (Waiting& one : waiting_) {
      if (one.due_ns == kNever && !plan.stall) one.due_ns = 0;
    }
    changed_.notify_all();
  }

  void submit(std::shared_ptr<TierBatch> batch) {
    if (batch->items().empty()) return;
    Waiting one{std::move(batch), {}, 0, 0};
    {
      const base::Lock lock(mutex_);
      one.plan = plan_;
      one.number = batches_++;
      ++under_way_;
      if (const uint64_t delay = delay_ns(one); delay != 0) {
        ++counts_.delayed_batches;
        one.due_ns = deadline_after(monotonic_ns(), delay);
        waiting_.push_back(std::move(one));
        changed_.notify_all();
        return;
      }
      ++inside_;
    }
    begin(std::move(one));
    leave();
  }

  FaultCounts faults() const {
    const base::Lock lock(mutex_);
    return counts_;
  }

  TierStats stats() const {
    TierStats stats = inner_->stats();
    const uint64_t evictions = stats.evictions, evicted_bytes = stats.evicted_bytes;
    const uint64_t already_there = stats.already_there;
    counters_.read(stats);
    stats.evictions = evictions;
    stats.evicted_bytes = evicted_bytes;
    stats.already_there = already_there;
    return stats;
  }

  bool flush(uint64_t until_ns) {
    {
      base::Lock lock(mutex_);
      const auto idle = [this]() STEMMA_REQUIRES(mutex_) { return under_way_ == 0; };
      if (!tier::wait_until(changed_, lock, until_ns, idle)) return false;
    }
    return inner_->flush(until_ns);
  }

  Purged purge(const Purge& what, uint64_t until_ns) {
    FaultPlan plan;
    uint64_t number = 0;
    {
      base::Lock lock(mutex_);
      plan = plan_;
      number = batches_++;
      const auto idle = [this]() STEMMA_REQUIRES(mutex_) { return under_way_ == 0; };
      if (!tier::wait_until(changed_, lock, until_ns, idle)) {
        return {.error = "what was submitted before has not ended"};
      }
    }
    if (plan.stall || draw(plan, TierOp::remove, number, 0).fault == Fault::fail) {
      add(&FaultCounts::failed, 1);
      return {.error = "the fault plan lets it fail"};
    }
    return inner_->purge(what, until_ns);
  }

  const TierTraits& traits() const noexcept { return inner_->traits(); }

 private:
  struct Waiting {
    std::shared_ptr<TierBatch> batch;
    FaultPlan plan;
    uint64_t number = 0;
    uint64_t due_ns = 0;
  };

  static uint64_t delay_ns(const Waiting& one) noexcept {
    const FaultPlan& plan = one.plan;
    if (plan.stall) return kNever;
    uint64_t delay = plan.delay_ns;
    if (plan.jitter_ns != 0) delay += dice(plan.seed, one.number, ~uint64_t{0}) % plan.jitter_ns;
    if (plan.bytes_per_second != 0) {
      uint64_t bytes = 0;
      for (const TierItem& item : one.batch->items())
        bytes += item.source.size() + item.into.size();
      delay += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 /
                                     static_cast<double>(plan.bytes_per_second));
    }
    return delay;
  }

  // A thread is inside while it calls the inner tier; destruction waits for it.
  void leave() {
    const base::Lock lock(mutex_);
    --inside_;
    changed_.notify_all();
  }

  void keep_time() {
    base::Lock lock(mutex_);
    while (!closing_) {
      const uint64_t now = monotonic_ns();
      const auto due = std::find_if(waiting_.begin(), waiting_.end(), [now](const Waiting& one) {
        return one.due_ns <= now || one.batch->verdict(now) != TierOutcome::pending;
      });
      if (due == waiting_.end()) {
        // Cancelling a batch notifies nobody, so it is polled.
        if (waiting_.empty()) {
          changed_.wait(lock);
        } else {
          changed_.wait_for(lock, std::chrono::microseconds(200));
        }
        continue;
      }
      Waiting one = std::move(*due);
      waiting_.erase(due);
      ++inside_;
      lock.unlock();
      begin(std::move(one));
      leave();
      lock.lock();
    }
  }

  void begin(Waiting one) {
    const TierOp op = one.batch->op();
    if (const TierOutcome verdict = one.batch->verdict(monotonic_ns());
        verdict != TierOutcome::pending) {
      end_all(one.batch, verdict);
      return;
    }
    const std::span<TierItem> items = one.batch->items();
    std::vector<size_t> passed;
    std::vector<size_t> failing;
    for (size_t i = 0; i < items.size(); ++i) {
      (draw(one.plan, op, one.number, i).fault == Fault::fail ? failing : passed).push_back(i);
    }
    add(&FaultCounts::failed, failing.size());
    auto made = TierBatch::make(op, passed.size());
    if (!made) {
      end_all(one.batch, TierOutcome::failed);
      return;
    }
    const std::shared_ptr<TierBatch> inner = *std::move(made);
    for (size_t i = 0; i < passed.size(); ++i) inner->items()[i] = items[passed[i]];
    inner->deadline_ns = one.batch->deadline_ns;
    inner->durable = one.batch->durable;
    const std::shared_ptr<TierBatch> outer = one.batch;
    inner->on_done = [this, one = std::move(one), passed = std::move(passed)](TierBatch& ended) {
      settle(one, passed, ended);
    };
    const bool any = !inner->items().empty();
    for (const size_t i : failing) end(*outer, i, TierOutcome::failed);
    if (any) {
      inner_->submit(inner);
    } else {
      finished();
    }
  }

  void settle(const Waiting& one, std::span<const size_t> passed, TierBatch& ended) {
    const TierOp op = ended.op();
    std::vector<EntryKey> gone;
    for (size_t i = 0; i < passed.size(); ++i) {
      TierItem& item = ended.items()[i];
      one.batch->items()[passed[i]].info = item.info;
      if (item.outcome != TierOutcome::done) continue;
      item.outcome = spoil(draw(one.plan, op, one.number, passed[i]), item, gone);
    }
    remove(gone);
    for (size_t i = 0; i < passed.size(); ++i) end(*one.batch, passed[i], ended.items()[i].outcome);
    finished();
  }

  // The faulty outcome of an item that the inner tier has done.
  TierOutcome spoil(const Drawn& drawn, const TierItem& item, std::vector<EntryKey>& gone) {
    const std::span<uint8_t> bytes =
        item.into.first(std::min<uint64_t>(item.info.bytes, item.into.size()));
    const auto flip = [&] {
      if (bytes.empty()) return;
      uint8_t& byte = bytes[drawn.where / 8 % bytes.size()];
      byte = static_cast<uint8_t>(byte ^ 1U << (drawn.where % 8));
    };
    switch (drawn.fault) {
      case Fault::none:
      case Fault::fail: return TierOutcome::done;
      case Fault::lose_answer: add(&FaultCounts::lost_answers, 1); return TierOutcome::failed;
      case Fault::tear: {
        add(&FaultCounts::torn, 1);
        gone.push_back(item.key);
        const size_t whole = bytes.empty() ? 0 : drawn.where % bytes.size();
        if (whole < bytes.size()) std::memset(bytes.data() + whole, 0, bytes.size() - whole);
        return TierOutcome::corrupt;
      }
      case Fault::flip:
        add(&FaultCounts::flipped, 1);
        gone.push_back(item.key);
        flip();
        return TierOutcome::corrupt;
      case Fault::forget:
        add(&FaultCounts::forgotten, 1);
        gone.push_back(item.key);
        return TierOutcome::done;
      case Fault::lie:
        add(&FaultCounts::lies, 1);
        flip();
        return TierOutcome::done;
    }
    return TierOutcome::done;
  }

  void remove(std::span<const EntryKey> keys) {
    if (keys.empty()) return;
    {
      const base::Lock lock(mutex_);
      if (closing_) return;
      ++inside_;
    }
    if (auto made = TierBatch::make(TierOp::remove, keys.size())) {
      for (size_t i = 0; i < keys.size(); ++i) (*made)->items()[i].key = keys[i];
      inner_->submit(*std::move(made));
    }
    leave();
  }

  void end_all(const std::shared_ptr<TierBatch>& batch, TierOutcome outcome) {
    for (size_t i = 0; i < batch->items().size(); ++i) end(*batch, i, outcome);
    finished();
  }

  void end(TierBatch& batch, size_t i, TierOutcome outcome) {
    counters_.count(batch.op(), outcome, batch.items()[i].info.bytes);
    batch.end(i, outcome);
  }

  // A batch has ended.
  void finished() {
    const base::Lock lock(mutex_);
    --under_way_;
    changed_.notify_all();
  }

  void add(uint64_t FaultCounts::* count, uint64_t by) {
    const base::Lock lock(mutex_);
    counts_.*count += by;
  }

  std::unique_ptr<Tier> inner_;
  tier::Counters counters_;
  mutable base::WaitMutex mutex_;
  base::Condition changed_;
  FaultPlan plan_ STEMMA_GUARDED_BY(mutex_);
  FaultCounts counts_ STEMMA_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ STEMMA_GUARDED_BY(mutex_);
  uint64_t batches_ STEMMA_GUARDED_BY(mutex_) = 0;    // Since the plan was set.
  uint64_t under_way_ STEMMA_GUARDED_BY(mutex_) = 0;  // Batches not finished.
  uint64_t inside_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

FaultyTier::FaultyTier(std::unique_ptr<Tier> inner, const FaultPlan& plan)
    : impl_(std::make_unique<Impl>(std::move(inner), plan)) {}
FaultyTier::~FaultyTier() = default;
void FaultyTier::set_plan(const FaultPlan& plan) { impl_->set_plan(plan); }
FaultCounts FaultyTier::faults() const { return impl_->faults(); }
const TierTraits& FaultyTier::traits() const noexcept { return impl_->traits(); }
void FaultyTier::submit(std::shared_ptr<TierBatch> batch) { impl_->submit(std::move(batch)); }
TierStats FaultyTier::stats() const { return impl_->stats(); }
bool FaultyTier::flush(uint64_t until_ns) { return impl_->flush(until_ns); }
Purged FaultyTier::purge(const Purge& what, uint64_t until_ns) {
  return impl_->purge(what, until_ns);
}

}  // namespace stemma
