// Compares the planner with every possible plan. A model that fits on a screen says which plans
// work and what they cost; an engine with real contents checks the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sequence/planner.h"
#include "support/cache_fixture.h"
#include "support/fake_sequences.h"
#include "support/plan_scene.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using sequence::kNoSequence;
using sequence::price_of;
using Bytes = std::vector<uint8_t>;

// An engine whose sequences hold beginnings of a prompt with something else behind them, and what
// was saved of that prompt and of another with the same beginning.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), engine(random_options()), scene_(Rewind::any) {
    prompt_ = tokens(12 + dice(60));
    scene_.traits = engine.traits();
    scene_.prompt = prompt_.size();
    scene_.limit = dice(4) == 0 ? dice(prompt_.size()) : prompt_.size() - 1;
    segment_tokens_ = 1U << (1 + dice(4));
    scene_.restorable = dice(2) == 0;
    // Bytes in thousands, so that rounding loses nothing.
    scene_.traits.bytes_per_token = engine.traits().bytes_per_token == 0 ? 0 : 1000;
    scene_.traits.fixed_bytes = 1000 * dice(3);
    scene_.traits.checkpoint_bytes = scene_.traits.rewind == Rewind::any ? 0 : 1000 * dice(40);
    scene_.costs.token_ns = 1 + dice(dice(2) == 0 ? 2000 : 50'000);
    scene_.costs.load.byte_ps = dice(3) == 0 ? dice(4000) : dice(200);
    scene_.costs.load.call_ns = dice(3) == 0 ? 0 : dice(5000);
    fill();
    save();
    scene_.costs.cell_ps = dice(2) == 0 ? 0 : dice(100'000);
    scene_.beside_cells = dice(2) == 0 ? 0 : dice(500);
    scene_.traits.range_tokens = dice(2) == 0 ? 0 : dice(200);
  }

  PlanInput input() const {
    PlanInput in = scene_.input();
    in.segment_tokens = segment_tokens_;
    return in;
  }

  // Executes a plan on a copy of the engine. Returns "" if it does what it says.
  std::string try_out(const Plan& plan) const {
    FakeSequences there = engine;
    const SequenceId id{plan.sequence};
    std::map<uint32_t, uint64_t> others;
    for (uint32_t s = 0; s < there.traits().sequences; ++s) {
      if (s != plan.sequence) others[s] = there.fingerprint(SequenceId{s});
    }
    const Result<void> done = carry_out(there, plan);
    if (!done) return done.error().to_string();
    const Held held = there.held(id);
    if (!held.whole || held.end != plan.available) return "it holds something else";
    if (!can_resume(there.traits(), held, plan.available)) return "it cannot be resumed";
    for (const auto& [s, print] : others) {
      if (there.fingerprint(SequenceId{s}) != print) return "another sequence changed";
    }
    std::string wrong = there.right(id, prompt_.first(plan.available).tokens);
    if (!wrong.empty()) return wrong;
    ok(there.compute(id, std::span(prompt_.tokens).subspan(plan.available)));
    return there.right(id, prompt_.tokens);
  }

  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }

 private:
  std::mt19937_64 random_;

  FakeSequences::Options random_options() {
    FakeSequences::Options options;
    do {
      options.sequences = 2 + dice(4);
      options.context_tokens = 4096;
      options.unified = dice(3) != 0;
      options.rewind = static_cast<Rewind>(dice(4));
      options.rewind_tokens = 1 + dice(20);
      options.window_slack_tokens = dice(10);
      options.fork = static_cast<Fork>(dice(4));
      options.segments = dice(4) != 0;
      options.checkpoints = dice(4) != 0;
      options.full_attention = dice(5) != 0;
    } while (!FakeSequences::possible(options));
    return options;
  }

  void compute(FakeSequences& there, SequenceId id, const Text& text, uint32_t end) {
    for (uint32_t at = there.held(id).end; at < end;) {
      const uint32_t step = std::min(end - at, 1 + dice(20));
      ok(there.compute(id, std::span(text.tokens).subspan(at, step)));
      at += step;
    }
  }
  // [0, common) of the prompt and then other words.
  Text parting(uint32_t common, uint32_t seed) {
    return prompt_.first(common) + tokens(dice(3) == 0 ? 0 : dice(40), seed);
  }

  void fill() {
    for (uint32_t s = 0; s < engine.traits().sequences; ++s) {
      const uint32_t kind = dice(5);
      const uint32_t common = kind == 0 ? 0 : dice(prompt_.size() + 1);
      const Text text = kind == 0 ? Text() : parting(common, s + 2);
      compute(engine, SequenceId{s}, text, text.size());
      const Held held = engine.held(SequenceId{s});
      const bool can_stay = kind < 4;
      const bool own = kind == 3;
      if (common != 0) scene_.live.push_back({s, common, held, can_stay, own});
      // Free, or offered as one of those used longest ago.
      if (text.size() == 0) scene_.free(s);
      if (can_stay && text.size() != 0 && (common == 0 || dice(3) == 0)) {
        scene_.free(s, price_of(input(), 0, held.end, own));
      }
    }
  }

  Bytes bytes_of(FakeSequences& there, Part part, Range range) {
    Bytes bytes(ok(there.size(SequenceId{0}, part, range)));
    ok(there.save(SequenceId{0}, part, range, bytes));
    return bytes;
  }
  void save() {
    if (engine.traits().fork == Fork::none) return;
    FakeSequences donor = engine;
    const SequenceId id{0};
    std::set<uint32_t> stops;
    for (uint32_t i = dice(5); i > 0; --i) stops.insert(1 + dice(prompt_.size()));
    const uint32_t limit = scene_.limit;
    ok(donor.clear(id));
    for (const uint32_t depth : stops) {
      compute(donor, id, prompt_, depth);
      // Without full attention a state is a checkpoint, so states are kept.
      if (engine.traits().checkpoints && engine.traits().bytes_per_token != 0) {
        checkpoint_bytes_[depth] = bytes_of(donor, Part::checkpoint, {0, depth});
        scene_.checkpoint(depth);
      }
      if (depth <= limit && dice(4) == 0) {
        state_bytes_[depth] = bytes_of(donor, Part::state, {0, depth});
        scene_.saved.state_depth = depth;
      }
    }
    compute(donor, id, prompt_, prompt_.size());
    if (engine.traits().segments && dice(4) != 0) {
      scene_.saved.segments = dice(limit + 1);
      for (uint32_t at = 0; at < scene_.saved.segments; at += segment_tokens_) {
        const Range range{at, std::min(at + segment_tokens_, prompt_.size())};
        segments_.push_back({range, bytes_of(donor, Part::segment, range)});
      }
    }
    if (dice(4) == 0) {
      const uint32_t common = 1 + dice(prompt_.size());
      const Text text = prompt_.first(common) + tokens(1 + dice(30), 99);
      ok(donor.clear(id));
      compute(donor, id, text, text.size());
      state_bytes_[1000 + text.size()] = bytes_of(donor, Part::state, {0, text.size()});
      scene_.saved.state_longest = std::min(common, limit);
      scene_.saved.state_longest_depth = text.size();
      longest_ = text.size();
    }
  }

  Result<void> carry_out(FakeSequences& there, const Plan& plan) const {
    const SequenceId id{plan.sequence};
    if (plan.base == Base::stay) {
      const bool cut = there.held(id).end > plan.base_tokens;
      if (cut && (plan.checkpoint == 0 || plan.segments_to != 0)) {
        STEMMA_TRY_VOID(there.trim(id, plan.base_tokens));
      }
    } else {
      STEMMA_TRY_VOID(there.clear(id));
    }
    if (plan.base == Base::fork) {
      STEMMA_TRY_VOID(there.copy(SequenceId{plan.source}, id, {0, plan.base_tokens}));
    }
    if (plan.state_depth != 0) {
      const bool longest = plan.state_depth == longest_ && plan.available != plan.state_depth;
      const Bytes& bytes = state_bytes_.at(plan.state_depth + (longest ? 1000 : 0));
      const Range all{0, plan.state_depth};
      STEMMA_TRY_VOID(there.load(id, Part::state, all, all, bytes));
      if (plan.available != plan.state_depth) STEMMA_TRY_VOID(there.trim(id, plan.available));
    }
    for (uint32_t at = plan.base_tokens; at < plan.segments_to;) {
      const Segment& segment = segments_[at / segment_tokens_];
      const Range wanted{at, std::min(segment.range.end, plan.segments_to)};
      STEMMA_TRY_VOID(there.load(id, Part::segment, segment.range, wanted, segment.bytes));
      at = wanted.end;
    }
    if (plan.checkpoint != 0) {
      const Range all{0, plan.checkpoint};
      const Bytes& bytes = checkpoint_bytes_.at(plan.checkpoint);
      STEMMA_TRY_VOID(there.load(id, Part::checkpoint, all, all, bytes));
    }
    return {};
  }

 public:
  FakeSequences engine;

 private:
  struct Segment {
    Range range;
    Bytes bytes;
  };
  Scene scene_;
  Text prompt_;
  uint32_t segment_tokens_ = 16;
  std::vector<Segment> segments_;
  std::map<uint32_t, Bytes> checkpoint_bytes_;
  std::map<uint32_t, Bytes> state_bytes_;  // The longest at 1000 more.
  uint32_t longest_ = 0;
};

// ---- The model ----------------------------------------------------------------------------------

// Whether the engine can do it: a plan is a base of some words, then segments, then a checkpoint.
bool works(const PlanInput& in, const LiveCandidate* live, const Plan& plan) {
  const bool any = in.traits.rewind == Rewind::any;
  const bool recurrent = in.traits.rewind == Rewind::bounded || in.traits.rewind == Rewind::exact;
  if (plan.state_depth != 0) return true;
  if (plan.checkpoint != 0) {
    if (plan.checkpoint > std::max(plan.base_tokens, plan.segments_to)) return false;
    // A base that must be trimmed for segments, but has the recurrent state of its end.
    return plan.base != Base::stay || plan.segments_to == 0 || !recurrent ||
           can_resume(in.traits, live->held, plan.base_tokens);
  }
  if (any || plan.available == 0) return true;
  if (plan.segments_to != 0) return false;
  if (plan.base == Base::fork && recurrent && plan.available != live->held.end) return false;
  return can_resume(in.traits, live->held, plan.available);
}

uint64_t cost_of(const PlanInput& in, const LiveCandidate* live, uint64_t loss, const Plan& plan) {
  const EngineTraits& t = in.traits;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t cost = loss + in.costs.compute({plan.available, in.prompt}, in.beside_cells);
  if (plan.base == Base::stay) {
    const bool gone = t.rewind != Rewind::any && !live->own;
    cost += price_of(in, gone ? 0 : plan.base_tokens, live->held.end, live->own);
  }
  if (plan.base == Base::fork && t.fork == Fork::shared) cost += in.costs.load.call_ns / 4;
  if (plan.base == Base::fork && t.fork == Fork::copy) {
    ++calls;
    bytes += t.checkpoint_bytes + plan.base_tokens * t.bytes_per_token;
  }
  for (uint32_t at = plan.base_tokens; at < plan.segments_to;) {
    // A call moves a segment, or a range that is larger.
    const uint32_t one = t.range_tokens > in.segment_tokens
                             ? at + t.range_tokens
                             : (at / in.segment_tokens + 1) * in.segment_tokens;
    const uint32_t end = std::min(plan.segments_to, one);
    ++calls;
    bytes += t.fixed_bytes + (end - at) * t.bytes_per_token;
    at = end;
  }
  if (plan.checkpoint != 0 || plan.state_depth != 0) {
    ++calls;
    bytes += t.checkpoint_bytes;
  }
  if (plan.state_depth != 0) bytes += t.fixed_bytes + plan.state_depth * t.bytes_per_token;
  return cost + calls * in.costs.load.call_ns + bytes / 1000 * in.costs.load.byte_ps;
}

// Calls back with every conceivable plan and its cost, whether it works or not.
template <class Visit>
void all_plans(const PlanInput& in, Visit visit) {
  std::map<uint32_t, uint64_t> places;  // The cost of emptying each.
  for (const Vacancy& vacancy : in.vacant) places[vacancy.sequence] = vacancy.loss_ns;
  for (const LiveCandidate& live : in.live) {
    if (live.can_stay) places[live.sequence] = price_of(in, 0, live.held.end, live.own);
  }
  std::vector<uint32_t> checkpoints{0};
  for (uint32_t depth : in.saved.checkpoints) {
    if (depth <= in.limit) checkpoints.push_back(depth);
  }
  const auto visit_all = [&](Plan plan, const LiveCandidate* live, uint64_t loss) {
    for (const uint32_t checkpoint : checkpoints) {
      for (const bool segments : {false, true}) {
        plan.segments_to = 0;
        // A checkpoint cuts what is there, so the base contributes no more than that.
        if (!segments && checkpoint != 0 && plan.base_tokens > checkpoint) continue;
        if (!segments && plan.base == Base::stay && plan.base_tokens < checkpoint) continue;
        if (segments) plan.segments_to = checkpoint != 0 ? checkpoint : in.saved.segments;
        if (segments && plan.segments_to <= plan.base_tokens) continue;
        if (plan.segments_to > in.saved.segments) continue;
        plan.checkpoint = checkpoint;
        plan.available =
            checkpoint != 0 ? checkpoint : std::max(plan.base_tokens, plan.segments_to);
        visit(plan, works(in, live, plan), cost_of(in, live, loss, plan));
      }
    }
  };
  for (const auto& [sequence, loss] : places) {
    Plan plan;
    plan.sequence = sequence;
    visit_all(plan, nullptr, loss);
    for (const auto& [depth, n] :
         {std::pair(in.saved.state_depth, in.saved.state_depth),
          std::pair(in.saved.state_longest_depth, in.saved.state_longest)}) {
      // How far the window of a saved state reaches back is not known.
      if (n == 0 || (in.traits.rewind != Rewind::any && n != depth)) continue;
      plan.state_depth = depth;
      plan.available = n;
      visit(plan, works(in, nullptr, plan), cost_of(in, nullptr, loss, plan));
    }
  }
  for (const LiveCandidate& live : in.live) {
    for (uint32_t n = 1; n <= std::min({live.common, live.held.end, in.limit}); ++n) {
      Plan plan;
      plan.base_tokens = n;
      plan.base = Base::stay;
      plan.sequence = live.sequence;
      if (live.can_stay) visit_all(plan, &live, 0);
      plan.base = Base::fork;
      plan.source = live.sequence;
      for (const auto& [sequence, loss] : places) {
        plan.sequence = sequence;
        const bool copies = in.traits.fork == Fork::shared || in.traits.fork == Fork::copy;
        if (copies && sequence != live.sequence) visit_all(plan, &live, loss);
      }
    }
  }
}

// ---- Tests --------------------------------------------------------------------------------------

constexpr uint64_t kWorlds = 10'000;

TEST(PlannerOracle, WhatTheModelSaysIsWhatTheEngineDoes) {
  uint64_t worked = 0;
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    World world(seed);
    const PlanInput in = world.input();
    std::vector<std::pair<Plan, bool>> plans;
    all_plans(in, [&](const Plan& plan, bool legal, uint64_t) { plans.push_back({plan, legal}); });
    for (uint32_t i = 0; i < 4 && !plans.empty(); ++i) {
      const auto& [plan, legal] = plans[world.dice(static_cast<uint32_t>(plans.size()))];
      const std::string wrong = world.try_out(plan);
      ASSERT_EQ(wrong.empty(), legal) << "seed " << seed << ": " << show(plan) << ": " << wrong;
      ++(legal ? worked : refused);
    }
  }
  EXPECT_GT(worked, kWorlds);
  EXPECT_GT(refused, kWorlds / 2);
}

TEST(PlannerOracle, NoPlanThatWorksIsCheaper) {
  std::map<std::string, uint64_t> seen;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    World world(seed);
    const PlanInput in = world.input();
    Plan best;
    all_plans(in, [&](const Plan& plan, bool legal, uint64_t cost_ns) {
      const bool better = best.sequence == kNoSequence || cost_ns < best.cost_ns ||
                          (cost_ns == best.cost_ns && plan.available > best.available);
      if (!legal || !better) return;
      best = plan;
      best.cost_ns = cost_ns;
    });
    const Plan plan = make_plan(in);
    ASSERT_EQ(plan.cost_ns, best.cost_ns)
        << "seed " << seed << ": " << show(plan) << ", but " << show(best);
    ASSERT_EQ(plan.available, best.available) << "seed " << seed;
    ASSERT_EQ(plan.sequence == kNoSequence, best.sequence == kNoSequence);
    if (plan.sequence == kNoSequence) continue;
    ASSERT_EQ(world.try_out(plan), "") << "seed " << seed << ": " << show(plan);
    std::string kind =
        plan.state_depth != 0
            ? "state"
            : std::vector<std::string>{"empty", "stay", "fork"}[static_cast<size_t>(plan.base)];
    if (plan.segments_to != 0) kind += " segments";
    if (plan.checkpoint != 0) kind += " checkpoint";
    ++seen[kind];
  }
  for (const char* kind :
       {"empty", "stay", "fork", "state", "empty segments", "stay segments", "fork segments",
        "empty segments checkpoint", "stay checkpoint", "fork checkpoint",
        "stay segments checkpoint", "fork segments checkpoint"}) {
    EXPECT_GT(seen[kind], kWorlds / 1000) << kind;
  }
}

}  // namespace
}  // namespace stemma::test
