// Scenes for the planner: what is live and what is saved.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sequence/planner.h"

namespace stemma::test {

using sequence::Base;
using sequence::Costs;
using sequence::LiveCandidate;
using sequence::Plan;
using sequence::PlanInput;
using sequence::SavedCandidates;
using sequence::Vacancy;

inline constexpr uint32_t kFree = 0;
inline constexpr uint32_t kOther = 1;  // The sequence that holds something.

// The facts for one plan: a prompt of 1000 words, the last of which must be computed.
struct Scene {
  explicit Scene(Rewind rewind = Rewind::any, Fork fork = Fork::shared) {
    traits.rewind = rewind;
    traits.fork = fork;
    traits.rewind_tokens = 16;
    traits.segments = true;
    traits.checkpoints = rewind != Rewind::any;
    traits.bytes_per_token = 1000;
    traits.fixed_bytes = 1000;
    traits.checkpoint_bytes = rewind == Rewind::any ? 0 : 20'000;
  }

  // What a sequence with `end` computed words holds.
  Held computed(uint32_t end) const {
    const uint32_t kept = traits.rewind_tokens + 8;
    if (traits.rewind == Rewind::any || end == 0) return {0, end};
    if (traits.rewind == Rewind::window) return {end - std::min(end, kept), end};
    if (traits.rewind == Rewind::bounded)
      return {end - std::min(end, traits.rewind_tokens + 1), end};
    return {end - 1, end};
  }
  Scene& free(uint32_t sequence, uint64_t loss_ns = 0) {
    vacant.push_back({sequence, loss_ns});
    return *this;
  }
  // Another request's sequence, which others may change.
  Scene& idle(uint32_t sequence, uint32_t common, uint32_t end) {
    live.push_back({sequence, common, computed(end), true, false});
    return *this;
  }
  Scene& own(uint32_t sequence, uint32_t common, uint32_t end) {
    live.push_back({sequence, common, computed(end), true, true});
    return *this;
  }
  Scene& leased(uint32_t sequence, uint32_t common, uint32_t end) {
    live.push_back({sequence, common, computed(end), false, false});
    return *this;
  }
  Scene& segments(uint32_t end) {
    saved.segments = end;
    return *this;
  }
  Scene& checkpoint(uint32_t depth) {
    checkpoints.push_back(depth);
    return *this;
  }
  Scene& state(uint32_t depth) {
    saved.state_depth = saved.state_longest = saved.state_longest_depth = depth;
    return *this;
  }

  PlanInput input() const {
    PlanInput in;
    in.traits = traits;
    in.limit = limit;
    in.prompt = prompt;
    in.live = live;
    in.vacant = vacant;
    in.saved = saved;
    in.saved.checkpoints = checkpoints;
    in.costs = costs;
    in.beside_cells = beside_cells;
    in.restorable = restorable;
    return in;
  }
  Plan plan() const { return make_plan(input()); }

  EngineTraits traits;
  uint32_t prompt = 1000;
  uint32_t limit = 999;
  std::vector<LiveCandidate> live;
  std::vector<Vacancy> vacant;
  std::vector<uint32_t> checkpoints;
  SavedCandidates saved;
  // A millisecond a token; moving one is about a microsecond.
  Costs costs{.token_ns = 1'000'000,
              .save = {.call_ns = 50'000, .byte_ps = 200},
              .load = {.call_ns = 50'000, .byte_ps = 200}};
  uint64_t beside_cells = 0;
  bool restorable = true;
};

// Writes a plan as "fork 1>0 300, segments 500, checkpoint 500": each step and the depth it
// reaches. Checks that `available` is the depth these steps give.
inline std::string show(const Plan& plan) {
  if (plan.sequence == sequence::kNoSequence) return "none";
  std::string out;
  uint32_t reach = plan.base_tokens;
  const std::string target = std::to_string(plan.sequence);
  if (plan.state_depth != 0) {
    EXPECT_TRUE(plan.base == Base::empty && plan.segments_to == 0 && plan.checkpoint == 0);
    EXPECT_LE(plan.available, plan.state_depth);
    out = "state " + target + " " + std::to_string(plan.state_depth);
    if (plan.available != plan.state_depth) out += ", trim " + std::to_string(plan.available);
    return out;
  }
  switch (plan.base) {
    case Base::empty: out = "empty " + target; break;
    case Base::stay: out = "stay " + target + " " + std::to_string(reach); break;
    case Base::fork:
      out = "fork " + std::to_string(plan.source) + ">" + target + " " + std::to_string(reach);
      break;
  }
  EXPECT_EQ(plan.source == sequence::kNoSequence, plan.base != Base::fork);
  EXPECT_EQ(plan.base_tokens == 0, plan.base == Base::empty);
  if (plan.segments_to != 0) {
    EXPECT_GT(plan.segments_to, reach);
    reach = plan.segments_to;
    out += ", segments " + std::to_string(reach);
  }
  if (plan.checkpoint != 0) {
    EXPECT_LE(plan.checkpoint, reach);
    reach = plan.checkpoint;
    out += ", checkpoint " + std::to_string(reach);
  }
  EXPECT_EQ(plan.available, reach);
  return out;
}
inline std::string best(const Scene& scene) { return show(scene.plan()); }

}  // namespace stemma::test
