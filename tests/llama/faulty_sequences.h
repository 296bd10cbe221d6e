// FaultySequences stands between a cache and an engine, and makes calls fail or lie on a schedule.
//
// A real engine cannot be stopped in the middle of a call, so half of one is a smaller one: a trim
// to half-way, a copy or a segment of half the positions, half the bytes of a state or checkpoint.
// It can also spoil saved bytes where the cache keeps them.
// Threading:  one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stemma/sequence_engine.h"
#include "support/sequence_faults.h"

namespace stemma::test {

class FaultySequences final : public SequenceEngine {
 public:
  explicit FaultySequences(SequenceEngine& engine) : engine_(engine) {}

  FaultSchedule faults;
  // Where save() wrote to; valid while the cache keeps it there.
  std::vector<std::span<uint8_t>> written;
  uint64_t loads = 0;

  EngineTraits traits() const override { return engine_.traits(); }

  Held held(SequenceId sequence) override {
    const Fault fault = faults.ask(Call::held);
    if (fault == Fault::lie_nothing) return {};
    Held held = engine_.held(sequence);
    if (fault == Fault::lie_half) ++held.end;
    return held;
  }

  Result<void> clear(SequenceId sequence) override {
    return with(
        Call::clear, [&] { return engine_.clear(sequence); },
        [&] { ignore(engine_.trim(sequence, engine_.held(sequence).end / 2)); });
  }

  Result<void> trim(SequenceId sequence, uint32_t n) override {
    return with(
        Call::trim, [&] { return engine_.trim(sequence, n); },
        [&] {
          const uint32_t end = std::max(n, engine_.held(sequence).end);
          if (n != 0) ignore(engine_.trim(sequence, n + (end - n) / 2));
        });
  }

  Result<void> copy(SequenceId from, SequenceId to, Range range) override {
    return with(
        Call::copy, [&] { return engine_.copy(from, to, range); },
        [&] { ignore(engine_.copy(from, to, first_half(range))); });
  }

  Result<uint64_t> size(SequenceId sequence, Part part, Range range) override {
    const Fault fault = faults.ask(Call::size);
    if (is_error(fault)) return kMade;
    if (fault == Fault::lie_nothing) return uint64_t{0};
    STEMMA_TRY(const uint64_t bytes, engine_.size(sequence, part, range));
    return fault == Fault::lie_half ? bytes / 2 : bytes;
  }

  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override {
    const Fault fault = faults.ask(Call::save);
    if (fault == Fault::before) return kMade;
    if (fault == Fault::lie_nothing) return uint64_t{0};
    STEMMA_TRY(const uint64_t bytes, engine_.save(sequence, part, range, out));
    written.push_back(out.first(bytes));
    if (is_error(fault)) return kMade;
    return fault == Fault::lie_half ? bytes / 2 : bytes;
  }

  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override {
    ++loads;
    return with(
        Call::load, [&] { return engine_.load(sequence, part, saved, wanted, bytes); },
        [&] {
          if (part == Part::segment) {
            ignore(engine_.load(sequence, part, saved, first_half(wanted), bytes));
          } else {
            ignore(engine_.load(sequence, part, saved, wanted, bytes.first(bytes.size() / 2)));
          }
        });
  }

  void settle() override { engine_.settle(); }
  uint32_t pieces(SequenceId sequence, Range range) override {
    return engine_.pieces(sequence, range);
  }
  Result<void> cut(Range whole, std::span<const uint8_t> bytes, Range part, std::span<uint8_t> out,
                   ByteSum& sum) const override {
    return engine_.cut(whole, bytes, part, out, sum);
  }
  Result<void> join(Range saved, std::span<const uint8_t> bytes, Range part, Range whole,
                    std::span<uint8_t> out, ByteSum& sum) const override {
    return engine_.join(saved, bytes, part, whole, out, sum);
  }
  Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) override {
    return with(Call::shift, [&] { return engine_.shift(sequence, keep, discard); }, [] {});
  }

 private:
  static constexpr Error kMade{Errc::copy_failed, "made to fail"};

  static bool is_error(Fault fault) {
    return fault == Fault::before || fault == Fault::halfway || fault == Fault::after;
  }
  static Range first_half(Range range) {
    return {range.begin, range.begin + (range.end - range.begin) / 2};
  }
  static void ignore(const Result<void>& /*result*/) {}

  template <class Whole, class Half>
  Result<void> with(Call call, Whole whole, Half half) {
    const Fault fault = faults.ask(call);
    switch (fault) {
      case Fault::none: return whole();
      case Fault::after: ignore(whole()); break;
      case Fault::halfway:
      case Fault::lie_half: half(); break;
      case Fault::before:
      case Fault::lie_nothing: break;
    }
    return is_error(fault) ? Result<void>(kMade) : Result<void>{};
  }

  SequenceEngine& engine_;
};

}  // namespace stemma::test
