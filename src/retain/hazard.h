// A HazardModel learns from past uses when a conversation is used again.
//
// Ages since the last use are cut into intervals, each 1.25 times as long as the one before. For
// each interval, the chance that a conversation not used before it is used in it is a logistic
// function of a sum of weights: one for the interval, and three for each trait (for the trait's
// value in this interval, in a few neighbouring ones, and in all). So rare cases lean on frequent
// ones, and the model can judge combinations of traits it has never seen. Weights are updated after
// each interval that a conversation outlived or was used in, by a step that shrinks with what was
// already learnt there (AdaGrad).
//
// The index of a conversation at some age is its highest expected number of uses per unit of time
// held, over all durations for which the cache could hold it from now on. Durations that are short
// against the cache's turnover are left out, to avoid chasing noise (a Gittins index).
//
// The constants and how little they matter: docs/retention.md.
// Threading:  one thread at a time.
// Cost:       about 790 KiB, taken at the start; learn() O(traits), index() O(traits x intervals).
//             No allocation.
#pragma once

#include <array>
#include <cstdint>

#include "base/slab.h"

namespace stemma::retain {

// What is known about a conversation at its last use. Numbers are logarithmic, in eighths.
struct Traits {
  enum Number : uint8_t {
    gap,
    gap_before,
    usual_gap,
    gap_after_finish,
    turn,
    length,
    added,
    output
  };
  static constexpr uint32_t kNumbers = 8;
  std::array<uint8_t, kNumbers> numbers = {};  // 0 = not known.
  // In this order: a new path; a path that branches off another; a conversation that goes on from
  // its end, or from before it; the rest that the latter leaves behind; a conversation whose
  // session has used another path since.
  enum Kind : uint8_t { kNew, kBranched, kWentOn, kTurned, kRest, kLeft };
  uint8_t kind = kNew;
  // A FinishReason; kOtherwise if the request named a session but no reason.
  static constexpr uint8_t kOtherwise = 5;
  uint8_t finish = 0;  // 0 = not known.

  // A number's place on the scale: 0 for unknown, then one step for every doubling from `unit`.
  static uint8_t place(double value, double unit) noexcept;
};

class HazardModel {
 public:
  static constexpr uint32_t kAges = 48;
  static constexpr uint32_t kKinds = 6;
  static constexpr uint32_t kFinishes = 6;

  // False when the system gives no memory.
  [[nodiscard]] bool create();
  uint64_t bytes() const noexcept { return weights_.bytes(); }

  // The interval an age lies in, and where one ends, in nanoseconds: interval(end_ns(i)) is i + 1
  // (but for the last interval, which has no end).
  static uint32_t interval(uint64_t age_ns) noexcept;
  static uint64_t end_ns(uint32_t interval) noexcept;

  // Learns that a conversation with these traits reached this interval unused, and whether it was
  // used in it. `weight` is how much that counts.
  void learn(const Traits& traits, uint32_t interval, bool used, float weight) noexcept;
  // Expected uses per second held, from the start of `interval` on.
  float index(const Traits& traits, uint32_t interval, double turnover_s) const noexcept;

 private:
  static constexpr uint32_t kGroup = 8;  // Intervals that share a weight.
  static constexpr uint32_t kGroups = kAges / kGroup;
  static constexpr uint32_t kColumns = kAges + kGroups + 1;
  static constexpr uint32_t kMostTerms = 32;
  struct Row {
    std::array<float, kColumns> weight;
    std::array<float, kColumns> seen;  // Sum of squared gradients.
  };
  struct Term {
    uint16_t row;
    float share;
  };
  struct Terms {
    std::array<Term, kMostTerms> terms;
    uint32_t count = 0;
    void add(uint32_t row, float share) noexcept {
      terms[count++] = {static_cast<uint16_t>(row), share};
    }
  };

  static Terms terms_of(const Traits& traits) noexcept;
  float chance(const Terms& terms, uint32_t interval) const noexcept;

  base::Slab<Row> weights_;
};

}  // namespace stemma::retain
