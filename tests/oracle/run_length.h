// How long random schedules go on, and how one of them is run again.
//
//   STEMMA_ORACLE_SEED=n        replay schedule n and no other
//   STEMMA_ORACLE_FIRST_SEED=n  begin with schedule n (1)
//   STEMMA_ORACLE_SECONDS=s     how long all schedule sets together take (20; under a sanitizer 14)
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "support/environment.h"

namespace stemma::oracle {

using test::from_environment;
using test::kSanitized;

// for (RunLength run(0.5); run.next();) run_world(run.seed());
class RunLength {
 public:
  // `share` of the time that all sets have together.
  explicit RunLength(double share)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                 share * static_cast<double>(
                             from_environment("STEMMA_ORACLE_SECONDS", kSanitized ? 14 : 20))))),
        seed_(from_environment("STEMMA_ORACLE_FIRST_SEED", 1) - 1) {}

  // `enough`: all that time decides has happened; where it has not, the set goes on, for a while.
  bool next(bool enough = true) {
    if (only_one()) {
      seed_ = from_environment("STEMMA_ORACLE_SEED", 0);
      return runs_++ == 0;
    }
    ++seed_;
    return runs_++ < (enough ? kAtLeast : kAtMost) || Clock::now() < end_;
  }
  uint64_t seed() const { return seed_; }
  static bool only_one() { return from_environment("STEMMA_ORACLE_SEED", 0) != 0; }
  std::string replay() const {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return "replay with STEMMA_ORACLE_SEED=" + std::to_string(seed_) +
           " build-dev/oracle_test --gtest_filter=" + test->test_suite_name() + "." + test->name();
  }

 private:
  // Fewer would leave to chance whether everything happened that should.
  static constexpr uint32_t kAtLeast = 12;
  static constexpr uint32_t kAtMost = 50 * kAtLeast;
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
  uint64_t seed_;
  uint32_t runs_ = 0;
};

}  // namespace stemma::oracle
