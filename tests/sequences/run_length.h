// How long random schedules of sequences go on, and how one of them is run again.
//
//   STEMMA_SEQUENCE_SEED=n        replay schedule n and no other; STEMMA_SEQUENCE_TRACE=1 prints its steps
//   STEMMA_SEQUENCE_FIRST_SEED=n  begin with schedule n (1)
//   STEMMA_SEQUENCE_SECONDS=s     how long all schedule sets together take (30; under a sanitizer 14)
//   STEMMA_SEQUENCE_OPERATIONS=n  go on, beyond the seconds if need be, until n operations are done
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
  static constexpr uint64_t kFullSeconds = 30;

  // `share` of the time, and of the operations, that all sets have together. A run of full length has
  // `at_least` so many schedules, however long a slow machine takes for them.
  explicit RunLength(double share, uint64_t at_least = 1)
      : at_least_(full_length() ? at_least : 1),
        operations_(static_cast<uint64_t>(
            share * static_cast<double>(from_environment("STEMMA_SEQUENCE_OPERATIONS", 0)))),
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
  static bool full_length() { return !only_one() && !kSanitized && seconds() >= kFullSeconds; }
  static uint64_t seconds() {
    return from_environment("STEMMA_SEQUENCE_SECONDS", kSanitized ? 14 : kFullSeconds);
  }
  std::string replay() const {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return "replay with STEMMA_SEQUENCE_SEED=" + std::to_string(seed_) +
           " build-dev/sequence_schedules_test --gtest_filter=" + test->test_suite_name() + "." +
           test->name();
  }

 private:
  using Clock = std::chrono::steady_clock;
  uint64_t at_least_;
  uint64_t operations_;
  uint64_t seed_;
  Clock::time_point end_;
  uint64_t runs_ = 0;
};

}  // namespace stemma::schedules
