// The engine of a schedule: a FakeSequences that can be made anew behind the cache's back, as a
// server does with a context that broke, and the clock that its calls move.
//
// Its calls can be overridden: plants.h does the wrong thing in one of them.
// Threading:  one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "stemma/clock.h"
#include "support/fake_sequences.h"

namespace stemma::schedules {

using test::FakeSequences;

class ScheduleEngine : public SequenceEngine, public Clock {
 public:
  explicit ScheduleEngine(const FakeSequences::Options& options)
      : options_(options), fake_(std::make_unique<FakeSequences>(options)) {}

  FakeSequences& fake() { return *fake_; }
  const FakeSequences& fake() const { return *fake_; }
  // A new context: no sequence holds anything. Time and faults go on.
  void renew() {
    earlier_ns_ += fake_->elapsed_ns();
    test::FaultSchedule faults = std::move(fake_->faults);
    fake_ = std::make_unique<FakeSequences>(options_);
    fake_->faults = std::move(faults);
  }

  void advance_ns(uint64_t by_ns) { earlier_ns_ += by_ns; }
  uint64_t now_ns() const noexcept override { return earlier_ns_ + fake_->elapsed_ns(); }

  // A forward pass.
  virtual Result<void> compute(SequenceId sequence, std::span<const Token> words) {
    return fake_->compute(sequence, words);
  }

  EngineTraits traits() const override { return fake_->traits(); }
  Held held(SequenceId sequence) override { return fake_->held(sequence); }
  Result<void> clear(SequenceId sequence) override { return fake_->clear(sequence); }
  Result<void> trim(SequenceId sequence, uint32_t n) override { return fake_->trim(sequence, n); }
  Result<void> copy(SequenceId from, SequenceId to, Range range) override {
    return fake_->copy(from, to, range);
  }
  Result<uint64_t> size(SequenceId sequence, Part part, Range range) override {
    return fake_->size(sequence, part, range);
  }
  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override {
    return fake_->save(sequence, part, range, out);
  }
  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override {
    return fake_->load(sequence, part, saved, wanted, bytes);
  }
  Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) override {
    return fake_->shift(sequence, keep, discard);
  }
  // On any thread, also while the context is made anew: by an engine that never is.
  void settle() override { fake_->settle(); }
  uint32_t pieces(SequenceId sequence, Range range) override {
    return fake_->pieces(sequence, range);
  }
  Result<void> cut(Range whole, std::span<const uint8_t> bytes, Range part, std::span<uint8_t> out,
                   ByteSum& sum) const override {
    return for_bytes_.cut(whole, bytes, part, out, sum);
  }
  Result<void> join(Range saved, std::span<const uint8_t> bytes, Range part, Range whole,
                    std::span<uint8_t> out, ByteSum& sum) const override {
    return for_bytes_.join(saved, bytes, part, whole, out, sum);
  }

 private:
  FakeSequences::Options options_;
  const FakeSequences for_bytes_{options_};
  std::unique_ptr<FakeSequences> fake_;
  uint64_t earlier_ns_ = 1;
};

}  // namespace stemma::schedules
