#include "support/sequence_faults.h"

#include <algorithm>

#include "base/random.h"

namespace stemma::test {

std::string to_string(Call call) {
  const char* const names[kCalls] = {"held", "clear", "trim",  "copy",   "size",
                                     "save", "load",  "shift", "compute"};
  return names[static_cast<uint32_t>(call)];
}

std::string to_string(Fault fault) {
  const char* const names[kFaults] = {"none",  "before",      "halfway",
                                      "after", "lie_nothing", "lie_half"};
  return names[static_cast<uint32_t>(fault)];
}

bool possible(Call call, Fault fault) {
  if (fault == Fault::none) return true;
  const bool lie = fault == Fault::lie_nothing || fault == Fault::lie_half;
  if (call == Call::held) return lie;
  return call != Call::compute || !lie;
}

FaultSchedule FaultSchedule::random(uint64_t seed, uint32_t per_mille,
                                    std::span<const Call> calls) {
  FaultSchedule schedule;
  schedule.random_ = base::mix(seed + 1);
  for (const Call call : calls) schedule.per_mille_[static_cast<uint32_t>(call)] = per_mille;
  return schedule;
}

void FaultSchedule::next(Call call, Fault fault) {
  list_.push_back({call, asked_[static_cast<uint32_t>(call)], fault});
}

Fault FaultSchedule::ask(Call call) {
  const uint64_t nth = asked_[static_cast<uint32_t>(call)]++;
  const auto planned = std::ranges::find_if(
      list_, [&](const PlannedFault& p) { return p.call == call && p.nth == nth; });
  Fault fault = planned == list_.end() ? draw(call) : planned->fault;
  if (!possible(call, fault)) fault = Fault::none;
  if (fault != Fault::none) happened_.push_back({call, nth, fault});
  return fault;
}

Fault FaultSchedule::draw(Call call) {
  const uint32_t per_mille = per_mille_[static_cast<uint32_t>(call)];
  if (per_mille == 0) return Fault::none;
  random_ += 0x9E37'79B9'7F4A'7C15U;
  const uint64_t dice = base::mix(random_);
  if (dice % 1000 >= per_mille) return Fault::none;
  // Tries the ways to go wrong in turn, from a random one on, until one is possible.
  for (uint64_t turn = dice >> 32;; ++turn) {
    const auto fault = static_cast<Fault>(1 + turn % (kFaults - 1));
    if (possible(call, fault)) return fault;
  }
}

}  // namespace stemma::test
