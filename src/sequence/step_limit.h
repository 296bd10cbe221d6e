// StepLimit: how many bytes a capture may read in one step, judged by the steps so far.
//
// Costs (costs.h) are estimates over all sizes, and a request has to wait if a step takes longer
// than expected. A read takes a time for the call and a time for each byte. So if b bytes took t,
// then b * (step / t) bytes take at most a step. The limit is the most that any read so far allows;
// a read that took too long lowers it.
//
// Threading:  one thread at a time.
// Cost:       O(1); nothing allocates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma::sequence {

// The length of a step, unless shorter ones are asked for: a little less than the 5 ms that a
// request may wait for one.
inline constexpr uint64_t kStepNs = 4'800'000;

class StepLimit {
 public:
  // One call read `bytes` in `spent_ns`.
  void read(uint64_t bytes, uint64_t spent_ns) noexcept {
    const double allowed = static_cast<double>(bytes) * static_cast<double>(kStepNs) /
                           static_cast<double>(std::max<uint64_t>(spent_ns, 1));
    const auto most = static_cast<uint64_t>(std::min(allowed, 1e18));
    // A short read that took long was in many pieces, and says nothing about bytes.
    const bool too_long = bytes_ != 0 && spent_ns > kStepNs && bytes >= bytes_ / 2;
    bytes_ = too_long ? std::min(bytes_, most) : std::max(bytes_, most);
  }
  // How many bytes may be read in a step of `step_ns`. 0: nothing is known yet.
  uint64_t bytes(uint64_t step_ns = kStepNs) const noexcept {
    return static_cast<uint64_t>(static_cast<double>(bytes_) * static_cast<double>(step_ns) /
                                 static_cast<double>(kStepNs));
  }

 private:
  uint64_t bytes_ = 0;
};

}  // namespace stemma::sequence
