// A tier that outlives the process that uses it, as far as a test is concerned.
#pragma once

#include <memory>
#include <utility>

#include "stemma/tier.h"

namespace stemma::test {

class Borrowed final : public Tier {
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
