// How long random schedules of sequences go on, and how one of them is run again.
//
//   STEMMA_SEQUENCE_SEED=n        replay schedule n and no other; STEMMA_SEQUENCE_TRACE=1 prints its steps
//   STEMMA_SEQUENCE_FIRST_SEED=n  begin with schedule n (1)
//   STEMMA_SEQUENCE_OPERATIONS=n  how much all schedule sets together do (900,000; under a sanitizer 90,000),
//                                 so that the same schedules run on every machine
//   STEMMA_SEQUENCE_SECONDS=s     go on for so long instead
//   STEMMA_SEQUENCE_SURVEY=1      go on after what is wrong: one line for each
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "support/environment.h"

namespace stemma::schedules {

using test::from_environment;
using test::kSanitized;

// for (RunLength run(0.5); run.next(operations);) operations += run_schedule(run.seed());
class RunLength {
 public:
  static constexpr uint64_t kUsualOperations = kSanitized ? 90'000 : 900'000;

  // `share` of the time, or of the operations, that all sets have together. A run of full length
  // has `at_least` so many schedules.
  explicit RunLength(double share, uint64_t at_least = 1)
      : at_least_(full_length() ? at_least : 1),
        operations_(static_cast<uint64_t>(share * static_cast<double>(operations()))),
        seed_(from_environment("STEMMA_SEQUENCE_FIRST_SEED", 1) - 1),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(
                 std::chrono::duration<double>(share * static_cast<double>(seconds())))) {}

  bool next(uint64_t operations_done) {
    if (only_one()) {
      seed_ = from_environment("STEMMA_SEQUENCE_SEED", 0);
      return runs_++ == 0;
    }
    ++seed_;
    return runs_++ < at_least_ || operations_done < operations_ || Clock::now() < end_;
  }
  uint64_t seed() const { return seed_; }

  static bool only_one() { return from_environment("STEMMA_SEQUENCE_SEED", 0) != 0; }
  // Whether everything that can happen must have: in a shorter run chance would decide.
  static bool full_length() {
    return !only_one() && !kSanitized && (operations() >= kUsualOperations || seconds() >= 30);
  }
  std::string replay() const {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return "replay with STEMMA_SEQUENCE_SEED=" + std::to_string(seed_) +
           " build-dev/sequence_schedules_test --gtest_filter=" + test->test_suite_name() + "." +
           test->name();
  }

 private:
  static uint64_t seconds() { return from_environment("STEMMA_SEQUENCE_SECONDS", 0); }
  static uint64_t operations() {
    return from_environment("STEMMA_SEQUENCE_OPERATIONS", seconds() != 0 ? 0 : kUsualOperations);
  }

  using Clock = std::chrono::steady_clock;
  uint64_t at_least_;
  uint64_t operations_;
  uint64_t seed_;
  Clock::time_point end_;
  uint64_t runs_ = 0;
};

}  // namespace stemma::schedules
