// A tier that holds back gets from the second on until a test releases them. So a test can see that
// earlier answers are used while the rest is still on its way.
//
// Threading:  thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stemma/tier/tier.h"

namespace stemma::test {

class Gated final : public Tier {
 public:
  explicit Gated(Tier& tier) : tier_(tier) {}
  ~Gated() override { open(); }

  void open() {
    std::vector<std::shared_ptr<TierBatch>> held;
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      held.swap(held_);
    }
    for (std::shared_ptr<TierBatch>& batch : held) tier_.submit(std::move(batch));
  }
  size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }

  const TierTraits& traits() const noexcept override { return tier_.traits(); }
  void submit(std::shared_ptr<TierBatch> batch) override {
    {
      const std::lock_guard lock(mutex_);
      if (batch->op() == TierOp::get && gets_++ != 0 && !open_) return held_.push_back(batch);
    }
    tier_.submit(std::move(batch));
  }
  TierStats stats() const override { return tier_.stats(); }
  bool flush(uint64_t until_ns) override { return tier_.flush(until_ns); }
  Purged purge(const Purge& what, uint64_t until_ns) override {
    return tier_.purge(what, until_ns);
  }

 private:
  Tier& tier_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<TierBatch>> held_;
  size_t gets_ = 0;
  bool open_ = false;
};

}  // namespace stemma::test
