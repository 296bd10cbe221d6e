#include "sequence/planner.h"

#include <algorithm>

namespace stemma::sequence {
namespace {

uint64_t cost_of_segments(const PlanInput& in, uint32_t begin, uint32_t end) {
  if (begin >= end) return 0;
  const uint64_t count = (end - 1) / in.segment_tokens - begin / in.segment_tokens + 1;
  return in.costs.move(
      count, count * in.traits.fixed_bytes + uint64_t{end - begin} * in.traits.bytes_per_token);
}

class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input) {}

  Plan best() {
    for (const Vacancy& vacancy : in_.vacant) {
      Plan plan;
      plan.sequence = vacancy.sequence;
      from(plan, vacancy.loss_ns, nullptr, 0);
      with_state(plan, vacancy.loss_ns);
    }
    for (const LiveCandidate& live : in_.live) {
      stay(live);
      fork(live);
      if (live.can_stay) {
        Plan plan;
        plan.sequence = live.sequence;
        const uint64_t loss = price_of(in_, 0, live.held.end, live.own);
        from(plan, loss, nullptr, 0);
        with_state(plan, loss);
      }
    }
    return best_;
  }

 private:
  bool any() const { return in_.traits.rewind == Rewind::any; }

  void offer(Plan plan, uint64_t cost_ns) {
    plan.cost_ns = cost_ns + in_.costs.compute(in_.prompt - plan.available);
    if (best_.sequence != kNoSequence) {
      if (plan.cost_ns > best_.cost_ns) return;
      // Of two that cost the same, the one that has more; then the first.
      if (plan.cost_ns == best_.cost_ns && plan.available <= best_.available) return;
    }
    best_ = plan;
  }

  uint64_t cost_of_copy(uint32_t tokens) const {
    if (in_.traits.fork == Fork::shared) return in_.costs.move_call_ns / 4;
    return in_.costs.move(1, uint64_t{tokens} * in_.traits.bytes_per_token);
  }

  // What the base has, or less of it, then segments, then a checkpoint. `spent` is the cost so far, but
  // for that of a copy, whose length is decided here. `live` is null for an empty base.
  void from(Plan plan, uint64_t spent, const LiveCandidate* live, uint32_t full) {
    const bool copied = plan.base == Base::fork;
    const auto add = [&](uint32_t base, uint32_t segments, uint32_t checkpoint, uint32_t n) {
      Plan next = plan;
      next.base_tokens = std::min(base, n);
      if (next.base_tokens == 0) {
        if (plan.base != Base::empty) return;  // The empty base has its own plans.
      }
      next.segments_to = segments > base ? segments : 0;
      next.checkpoint = checkpoint;
      next.available = n;
      uint64_t cost = spent + cost_of_segments(in_, next.base_tokens, next.segments_to);
      if (copied) cost += cost_of_copy(next.base_tokens);
      if (live != nullptr && plan.base == Base::stay) {
        // A memory that does not go back gives up its end by going on.
        const bool gone = !any() && !live->own;
        cost += price_of(in_, gone ? 0 : next.base_tokens, live->held.end, live->own);
      }
      if (checkpoint != 0) cost += in_.costs.move(1, in_.traits.checkpoint_bytes);
      offer(next, cost);
    };
    if (live == nullptr) add(0, 0, 0, 0);
    // Behind a base that must be trimmed first, which a recurrent state does not survive, nothing is
    // loaded.
    const bool extends = live == nullptr || copied || any() || full == live->held.end ||
                         in_.traits.rewind == Rewind::window;
    const uint32_t reach = extends ? std::max(full, in_.saved.segments) : full;
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
    // The deepest checkpoint that what is below it reaches; with segments and without.
    for (const uint32_t most : {reach, full}) {
      const auto after =
          std::upper_bound(in_.saved.checkpoints.begin(), in_.saved.checkpoints.end(), most);
      if (after == in_.saved.checkpoints.begin()) continue;
      const uint32_t depth = *(after - 1);
      add(full, depth > full ? depth : 0, depth, depth);
      if (reach == full) break;
    }
  }

  void with_state(Plan plan, uint64_t spent) {
    const auto add = [&](uint32_t depth, uint32_t n) {
      if (n == 0) return;
      Plan next = plan;
      next.state_depth = depth;
      next.available = n;
      offer(next, spent + in_.costs.move(1, in_.traits.fixed_bytes + in_.traits.checkpoint_bytes +
                                                depth * in_.traits.bytes_per_token));
    };
    add(in_.saved.state_depth, in_.saved.state_depth);
    if (any()) add(in_.saved.state_longest_depth, in_.saved.state_longest);
  }

  void stay(const LiveCandidate& live) {
    if (!live.can_stay) return;
    Plan plan;
    plan.sequence = live.sequence;
    plan.base = Base::stay;
    from(plan, 0, &live, std::min({live.common, live.held.end, in_.limit}));
  }

  void fork(const LiveCandidate& live) {
    if (in_.traits.fork != Fork::shared && in_.traits.fork != Fork::copy) return;
    const auto other = std::find_if(in_.vacant.begin(), in_.vacant.end(), [&](const Vacancy& it) {
      return it.sequence != live.sequence;
    });
    if (other == in_.vacant.end()) return;
    Plan plan;
    plan.sequence = other->sequence;
    plan.base = Base::fork;
    plan.source = live.sequence;
    from(plan, other->loss_ns, &live, std::min({live.common, live.held.end, in_.limit}));
  }

  const PlanInput& in_;
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
  // It may never be wanted again.
  uint64_t cost = input.costs.compute(end - begin) / 2;
  if (input.restorable) {
    const uint64_t checkpoint =
        input.traits.rewind == Rewind::any ? 0 : input.costs.move(1, input.traits.checkpoint_bytes);
    // It may be wanted more than once.
    cost = std::min(cost, 2 * (cost_of_segments(input, begin, end) + checkpoint));
  }
  return own ? cost / 10 : cost;
}

Plan make_plan(const PlanInput& input) { return Planner(input).best(); }

}  // namespace stemma::sequence
