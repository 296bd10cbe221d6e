// A Tally adds up what schedules did, to show that they tested what they are for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sequences/situation.h"
#include "stemma/sequence_stats.h"
#include "support/sequence_faults.h"

namespace stemma::schedules {

struct Tally {
  uint64_t schedules = 0;
  std::array<uint64_t, kOperations> operations{};
  std::map<std::string, uint64_t> events;  // Of the schedule's own counting.
  uint64_t turns = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  // Of turns that may reuse something, over caches that can.
  struct Able {
    uint64_t prompt_tokens = 0;
    uint64_t reused_tokens = 0;
    double percent() const {
      return 100.0 * static_cast<double>(reused_tokens) /
             static_cast<double>(prompt_tokens == 0 ? 1 : prompt_tokens);
    }
  };
  std::array<Able, 4> able{};  // By Rewind.
  std::array<uint64_t, kOutcomeCount> outcomes{};
  std::array<uint64_t, kSequenceMissCount> reasons{};
  std::array<uint64_t, kStepCount> steps{};
  std::array<uint64_t, kStepCount> step_tokens{};
  std::array<uint64_t, kStepCount> failures{};
  std::array<uint64_t, kCaptureFateCount> captures{};
  uint64_t quarantined = 0;
  uint64_t victims = 0;
  uint64_t victims_saved = 0;
  uint64_t dropped_idle = 0;
  uint64_t stale_calls = 0;
  uint64_t broken = 0;
  uint64_t evictions = 0;
  std::array<std::array<uint64_t, test::kFaults>, test::kCalls> faults{};

  void add(const SequenceStats& stats, const std::vector<test::PlannedFault>& happened);
  Tally& operator+=(const Tally& other);

  uint64_t operation_count() const;
  Able all_able() const;
  std::string text() const;
  // The names of events that never happened although they could have; "" if none. `with_faults`:
  // includes events that need a fault, and every way in which calls other than held() go wrong.
  std::string missing(bool with_faults) const;
};

}  // namespace stemma::schedules
