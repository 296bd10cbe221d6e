// A tier that outlives the cache above it, as a disk outlives its process.
#pragma once

#include <memory>
#include <utility>

#include "stemma/tier/tier.h"

namespace stemma::test {

class Borrowed : public Tier {
 public:
  explicit Borrowed(Tier& tier) : tier_(tier) {}
  ~Borrowed() override { tier_.flush(kNever); }
  const TierTraits& traits() const noexcept override { return tier_.traits(); }
  void submit(std::shared_ptr<TierBatch> batch) override { tier_.submit(std::move(batch)); }
  TierStats stats() const override { return tier_.stats(); }
  bool flush(uint64_t until_ns) override { return tier_.flush(until_ns); }
  Purged purge(const Purge& what, uint64_t until_ns) override {
    return tier_.purge(what, until_ns);
  }

 private:
  Tier& tier_;
};

}  // namespace stemma::test
