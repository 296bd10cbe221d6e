#include "tier/late_tier.h"

#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/lock.h"
#include "tier/counters.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

class LateTier final : public Tier {
 public:
  LateTier(TierTraits traits, OpenTier open, uint64_t retry_ns)
      : traits_(std::move(traits)),
        open_(std::move(open)),
        retry_ns_(retry_ns),
        thread_([this] { try_to_open(); }) {}
  ~LateTier() override {
    {
      const base::Lock lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const TierTraits& traits() const noexcept override { return traits_; }

  void submit(std::shared_ptr<TierBatch> batch) override {
    if (Tier* const tier = real()) return tier->submit(std::move(batch));
    const TierOutcome verdict = batch->verdict(monotonic_ns());
    const TierOutcome outcome = verdict == TierOutcome::pending ? TierOutcome::failed : verdict;
    for (size_t i = 0, count = batch->items().size(); i < count; ++i) {
      away_.count(batch->op(), outcome, 0);
      batch->end(i, outcome);
    }
  }

  TierStats stats() const override {
    TierStats away;
    away_.read(away);
    Tier* const tier = real();
    if (tier == nullptr) {
      away.reachable = false;
      return away;
    }
    TierStats stats = tier->stats();
    stats.failed += away.failed;
    stats.late += away.late;
    stats.cancelled += away.cancelled;
    return stats;
  }

  bool flush(uint64_t until_ns) override {
    Tier* const tier = real();
    return tier == nullptr || tier->flush(until_ns);
  }

  Purged purge(const Purge& what, uint64_t until_ns) override {
    if (Tier* const tier = real()) return tier->purge(what, until_ns);
    return {.error = "the tier could not be opened yet, so nothing that lies there was removed"};
  }

 private:
  // Null until the tier could be opened; then the same pointer for good.
  Tier* real() const {
    const base::Lock lock(mutex_);
    return real_.get();
  }

  Result<std::unique_ptr<Tier>> open() const try { return open_(); } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to open the tier");
  }

  void try_to_open() {
    base::Lock lock(mutex_);
    while (!closing_) {
      lock.unlock();
      Result<std::unique_ptr<Tier>> opened = open();
      lock.lock();
      if (opened) {
        real_ = *std::move(opened);
        return;
      }
      wait_until(changed_, lock, deadline_after(monotonic_ns(), retry_ns_),
                 [this]() STEMMA_REQUIRES(mutex_) { return closing_; });
    }
  }

  const TierTraits traits_;
  const OpenTier open_;
  const uint64_t retry_ns_;
  Counters away_;  // Items that ended while there was no tier.
  mutable base::WaitMutex mutex_;
  base::Condition changed_;
  std::unique_ptr<Tier> real_ STEMMA_GUARDED_BY(mutex_);  // Never changes again once it is set.
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Tier>> make_late_tier(TierTraits traits, OpenTier open,
                                             uint64_t retry_ns) try {
  return std::unique_ptr<Tier>(
      std::make_unique<LateTier>(std::move(traits), std::move(open), retry_ns));
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a tier that is opened later");
} catch (const std::system_error&) {
  return Error(Errc::out_of_memory, "no thread for a tier that is opened later");
}

}  // namespace stemma::tier
