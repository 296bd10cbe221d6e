// A FaultSchedule decides which calls of a fake engine go wrong, and how.
//
// Either by a list ("the third load fails half-way") or by a seed. The faults of a run can be read
// back as a list, so a random run that found a bug can be replayed call by call and shortened by
// hand.
// Threading:  one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stemma::test {

enum class Call : uint8_t { held, clear, trim, copy, size, save, load, shift, compute };
inline constexpr uint32_t kCalls = 9;

enum class Fault : uint8_t {
  none,
  before,       // An error, nothing was done.
  halfway,      // An error, half of it was done.
  after,        // An error, all of it was done.
  lie_nothing,  // Success, nothing was done.
  lie_half,     // Success, half of it was done.
};
inline constexpr uint32_t kFaults = 6;

std::string to_string(Call call);
std::string to_string(Fault fault);

// Whether a call can go wrong like that. held() returns no error, it can only lie; everybody
// believes a forward pass that reports success.
bool possible(Call call, Fault fault);

struct PlannedFault {
  Call call = Call::load;
  uint64_t nth = 0;  // Of the calls of this kind, counted from 0.
  Fault fault = Fault::before;
  bool operator==(const PlannedFault&) const = default;
};

class FaultSchedule {
 public:
  FaultSchedule() = default;  // Nothing goes wrong.
  // Requires each to be possible().
  explicit FaultSchedule(std::vector<PlannedFault> list) : list_(std::move(list)) {}
  // In a thousand of these calls `per_mille` go wrong, in any of the possible ways.
  static FaultSchedule random(uint64_t seed, uint32_t per_mille, std::span<const Call> calls);

  // Adds "the next call of this kind" to the list.
  void next(Call call, Fault fault);

  // The engine asks once per call how this call goes wrong.
  Fault ask(Call call);

  const std::vector<PlannedFault>& happened() const { return happened_; }

 private:
  Fault draw(Call call);

  std::vector<PlannedFault> list_;
  std::array<uint32_t, kCalls> per_mille_{};
  uint64_t random_ = 0;
  std::array<uint64_t, kCalls> asked_{};
  std::vector<PlannedFault> happened_;
};

}  // namespace stemma::test
