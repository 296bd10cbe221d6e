#include "sequence/planner.h"

#include <algorithm>
#include <array>

namespace stemma::sequence {
namespace {

uint64_t cost_of_segments(const PlanInput& in, uint32_t begin, uint32_t end) {
  return cost_of_moving(in.costs.load, in.traits, in.segment_tokens, {begin, end}, false);
}

class Planner {
 public:
  Planner(const PlanInput& input, const std::function<bool(const Plan&)>& fits)
      : in_(input), fits_(fits) {}

  Plan best() {
    find_places();
    if (places_[0].sequence != kNoSequence) {
      Plan plan;
      plan.sequence = places_[0].sequence;
      from(plan, places_[0].loss_ns, nullptr, 0);
      with_state(plan, places_[0].loss_ns);
    }
    for (const LiveCandidate& live : in_.live) {
      const uint32_t full = std::min({live.common, live.held.end, in_.limit});
      stay(live, full);
      fork(live, full);
    }
    return best_;
  }

 private:
  bool any() const { return in_.traits.rewind == Rewind::any; }

  // The two sequences that are cheapest to empty: two, because one may be the source of a fork.
  void find_places() {
    const auto add = [&](const Vacancy& place) {
      const auto better = [&](const Vacancy& it) {
        return it.sequence == kNoSequence || place.loss_ns < it.loss_ns;
      };
      if (better(places_[0])) {
        places_[1] = places_[0];
        places_[0] = place;
      } else if (better(places_[1])) {
        places_[1] = place;
      }
    };
    for (const Vacancy& vacancy : in_.vacant) {
      // Emptying a sequence that has something to offer costs what that is worth.
      const bool offers =
          std::any_of(in_.live.begin(), in_.live.end(), [&](const LiveCandidate& live) {
            return live.can_stay && live.sequence == vacancy.sequence;
          });
      if (!offers) add(vacancy);
    }
    for (const LiveCandidate& live : in_.live) {
      if (live.can_stay) add({live.sequence, price_of(in_, 0, live.held.end, live.own)});
    }
  }

  void offer(Plan plan, uint64_t cost_ns) {
    plan.cost_ns = cost_ns + in_.costs.compute({plan.available, in_.prompt}, in_.beside_cells);
    if (best_.sequence != kNoSequence) {
      if (plan.cost_ns > best_.cost_ns) return;
      // If two plans cost the same, the one that reuses more wins; then the first.
      if (plan.cost_ns == best_.cost_ns && plan.available <= best_.available) return;
    }
    if (!fits_ || fits_(plan)) best_ = plan;
  }

  uint64_t cost_of_copy(uint32_t tokens) const {
    if (in_.traits.fork == Fork::shared) {
      return in_.costs.load.call_ns / 4 + tokens * in_.costs.copy_token_ps / 1000;
    }
    return in_.costs.load.of(1, in_.traits.checkpoint_bytes + tokens * in_.traits.bytes_per_token);
  }

  // All or part of the base, then segments, then a checkpoint. `spent` is the cost so far, without
  // that of a copy, whose length is decided here. `live` is null for an empty base.
  void from(const Plan& plan, uint64_t spent, const LiveCandidate* live, uint32_t full) {
    const bool copied = plan.base == Base::fork;
    const auto add = [&](uint32_t base, uint32_t segments, uint32_t checkpoint, uint32_t n) {
      Plan next = plan;
      next.base_tokens = std::min(base, n);
      next.segments_to = segments > base ? segments : 0;
      next.checkpoint = checkpoint;
      next.available = n;
      uint64_t cost = spent + cost_of_segments(in_, next.base_tokens, next.segments_to);
      if (copied) cost += cost_of_copy(next.base_tokens);
      if (plan.base == Base::stay) {
        // A memory that cannot go back gives up its end by going on.
        const bool gone = !any() && !live->own;
        cost += price_of(in_, gone ? 0 : next.base_tokens, live->held.end, live->own);
      }
      if (checkpoint != 0) cost += in_.costs.load.of(1, in_.traits.checkpoint_bytes);
      offer(next, cost);
    };
    if (live == nullptr) add(0, 0, 0, 0);
    if (live != nullptr && full == 0) return;  // The empty base has its own plans.
    // Segments go behind a base that can be cut where they begin. A recurrent state must be able to
    // go back that far; a window may be lost, because a checkpoint brings it.
    const bool extends = live == nullptr || copied || in_.traits.rewind == Rewind::window ||
                         resumable(in_.traits, live->held, full, false) == full;
    const uint32_t segments = std::min(in_.saved.segments, in_.limit);
    const uint32_t reach = extends ? std::max(full, segments) : full;
    if (any()) {
      if (full != 0) add(full, 0, 0, full);
      if (reach > full) add(full, reach, 0, reach);
      return;
    }
    if (live != nullptr) {
      const uint32_t n = resumable(in_.traits, live->held, full, copied);
      if (n != 0) add(n, 0, 0, n);
    }
    if (!in_.traits.checkpoints) return;
    // Try a few checkpoints that segments reach: an extra call may cost more than the few tokens it
    // saves. Then try the deepest that needs no segments.
    const auto depths = in_.saved.checkpoints;
    auto after = std::upper_bound(depths.begin(), depths.end(), reach);
    constexpr uint32_t kFew = 4;
    for (uint32_t i = 0; i < kFew && after != depths.begin() && *(after - 1) > full; ++i) {
      const uint32_t depth = *--after;
      add(full, depth, depth, depth);
    }
    after = std::upper_bound(depths.begin(), after, full);
    if (after == depths.begin()) return;
    add(full, 0, *(after - 1), *(after - 1));
  }

  void with_state(const Plan& plan, uint64_t spent) {
    const auto add = [&](uint32_t depth, uint32_t n) {
      if (n == 0) return;
      Plan next = plan;
      next.state_depth = depth;
      next.available = n;
      offer(next,
            spent + in_.costs.load.of(1, in_.traits.fixed_bytes + in_.traits.checkpoint_bytes +
                                             depth * in_.traits.bytes_per_token));
    };
    const SavedCandidates& saved = in_.saved;
    if (saved.state_depth <= in_.limit) add(saved.state_depth, saved.state_depth);
    if (any()) add(saved.state_longest_depth, std::min(saved.state_longest, in_.limit));
  }

  void stay(const LiveCandidate& live, uint32_t full) {
    if (!live.can_stay) return;
    Plan plan;
    plan.sequence = live.sequence;
    plan.base = Base::stay;
    from(plan, 0, &live, full);
  }

  void fork(const LiveCandidate& live, uint32_t full) {
    if (in_.traits.fork != Fork::shared && in_.traits.fork != Fork::copy) return;
    const Vacancy& place = places_[places_[0].sequence == live.sequence ? 1 : 0];
    if (place.sequence == kNoSequence) return;
    Plan plan;
    plan.sequence = place.sequence;
    plan.base = Base::fork;
    plan.source = live.sequence;
    from(plan, place.loss_ns, &live, full);
  }

  const PlanInput& in_;
  const std::function<bool(const Plan&)>& fits_;
  std::array<Vacancy, 2> places_;
  Plan best_;
};

}  // namespace

uint32_t resumable(const EngineTraits& traits, Held held, uint32_t n, bool copied) noexcept {
  n = std::min(n, held.end);
  if (n == 0 || !held.whole) return 0;
  // A copy has the recurrent state of its source's end.
  const bool recurrent = traits.rewind == Rewind::exact || traits.rewind == Rewind::bounded;
  if (copied && recurrent && n != held.end) return 0;
  return can_resume(traits, held, n) ? n : 0;
}

uint64_t price_of(const PlanInput& input, uint32_t begin, uint32_t end, bool own) {
  if (begin >= end) return 0;
  // Half, because it may never be wanted again.
  uint64_t cost = input.costs.compute({begin, end}) / 2;
  if (input.restorable) {
    const bool anchored = input.traits.rewind != Rewind::any;
    // Twice, because it may be wanted more than once.
    cost = std::min(cost, 2 * cost_of_moving(input.costs.load, input.traits, input.segment_tokens,
                                             {begin, end}, anchored));
  }
  return own ? cost / 10 : cost;
}

bool worth_dropping(const PlanInput& input, const IdleSequence& idle) {
  // If it stays, it slows down later turns too. As many as there were so far is a good guess for
  // how many will come, so the cost it has had already counts as well.
  const uint64_t slows = std::min(idle.slowed_ns, kMostNs) +
                         input.costs.idle(idle.own_cells, idle.prompt_tokens, idle.answer_tokens);
  if (slows < kMomentNs) return false;
  const uint32_t begin = idle.length - std::min(idle.length, idle.own_cells);
  const uint32_t middle = std::clamp(idle.restorable, begin, idle.length);
  const bool anchored = input.traits.rewind != Rewind::any;
  const uint64_t load = cost_of_moving(input.costs.load, input.traits, input.segment_tokens,
                                       {begin, middle}, anchored);
  // Loading counts half: it may never be needed. What cannot be loaded is lost and counts in full.
  return slows > load / 2 + input.costs.compute({middle, idle.length});
}

Plan make_plan(const PlanInput& input, const std::function<bool(const Plan&)>& fits) {
  return Planner(input, fits).best();
}

}  // namespace stemma::sequence
