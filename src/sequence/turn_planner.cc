#include "sequence/turn_planner.h"

#include <algorithm>
#include <array>

#include "sequence/capture_rules.h"
#include "sequence/room_promises.h"
#include "sequence/stops.h"

namespace stemma::sequence {

bool TurnPlanner::plan(TurnRecord& turn, Found& found) {
  PlanInput input = finder_.plan_input(turn);
  input.live = found.live;
  input.vacant = found.vacant;
  input.saved = found.saved;
  turn.plan = make_plan(input);
  // A fork keeps its source, and a load may need more room than the prompt. So if the best plan
  // does not fit, take the best of those that do.
  if (turn.plan.sequence != kNoSequence && !fits(books_, turn, turn.plan)) {
    turn.plan = make_plan(input, [&](const Plan& plan) { return fits(books_, turn, plan); });
    // The report must not blame costs for a copy that did not fit.
    std::erase_if(found.live, [](const LiveCandidate& live) { return !live.can_stay; });
  }
  return turn.plan.sequence != kNoSequence;
}

void TurnPlanner::replan(TurnRecord& turn, const Excluded& excluded, bool cold) {
  turn.segments = {};
  turn.state = {};
  Found found;
  if (cold) {
    turn.plan = {};
    turn.plan.sequence = turn.sequence;
  } else {
    finder_.find(turn, found, Holding::yes, turn.sequence, excluded);
    if (!plan(turn, found)) {
      turn.plan = {};
      turn.plan.sequence = turn.sequence;
    }
  }
  finder_.hold_anchor(turn, found);
  const uint32_t matched = turn.report.matched_tokens;
  if (!cold) explain(turn, found);
  turn.report.matched_tokens = std::max(matched, turn.report.matched_tokens);
  turn.report.reused_tokens = turn.plan.available;
  turn.report.evaluated_tokens = turn.prompt_tokens - turn.plan.available;
  found.matched = turn.report.matched_tokens;
  choose_stops(turn, found);
  turn.epoch = books_.epoch;
}

void TurnPlanner::choose_stops(TurnRecord& turn, const Found& found) {
  turn.stops.clear();
  turn.interval_tokens = 0;
  turn.late_tokens = 0;
  if (!keeps_anchors(books_, turn)) return;
  // If the whole prompt fits in the window, computing it pushes nothing out.
  if (books_.use_checkpoints && books_.traits.rewind == Rewind::window) {
    turn.late_tokens = turn.prompt_tokens <= books_.traits.rewind_tokens
                           ? turn.prompt_tokens
                           : books_.window_slack.tokens();
  }
  StopInput input;
  input.available = turn.plan.available;
  input.terminal = turn.terminal;
  input.parting = found.matched;
  input.message_ends = turn.message_ends;
  input.gap_tokens = turn.late_tokens != 0 ? kLeastLateGap : kLeastChunk;
  input.least_tokens = books_.options.least_tokens;
  input.marks = books_.options.marks;
  if (books_.options.interval_tokens != 0) {
    // A caller that asks for short intervals gets short chunks.
    input.interval_tokens = books_.options.interval_tokens;
    input.exact_intervals = true;
    input.gap_tokens = std::min(input.gap_tokens, books_.options.interval_tokens);
    input.least_tokens = std::min(input.least_tokens, books_.options.interval_tokens);
  } else {
    // Each checkpoint may push out a more useful one, so a request gets only a small part of the
    // store.
    constexpr uint64_t kShareOfStore = 16;
    constexpr uint64_t kFew = 3;
    const uint64_t bytes = anchor_bytes(books_, turn.prompt_tokens);
    const StateStore& store = books_.use_checkpoints ? *books_.checkpoints : *books_.states;
    const uint64_t room = store.stats().budget_bytes / std::max<uint64_t>(bytes, 1) / kShareOfStore;
    input.marks =
        static_cast<uint32_t>(std::min<uint64_t>(input.marks, std::max<uint64_t>(room, kFew)));
    if (room > kFew) {
      input.interval_tokens =
          natural_interval(turn.prompt_tokens, books_.meter.costs().save.of(1, bytes),
                           books_.meter.costs().token_ns);
    }
  }
  turn.interval_tokens = input.interval_tokens;
  turn.stops = sequence::choose_stops(turn.text, input);
  // Drop stops whose checkpoint would never pay.
  std::erase_if(turn.stops, [&](uint32_t depth) { return !worth_keeping(books_, depth); });
}

// ---- The report --------------------------------------------------------------------------------

void TurnPlanner::explain(TurnRecord& turn, const Found& found) const {
  SequenceReport& report = turn.report;
  const uint32_t n = turn.plan.available;
  report.matched_tokens = found.matched;
  report.reused_tokens = n;
  report.evaluated_tokens = turn.prompt_tokens - n;
  report.outcome = turn.bypass || turn.reuse == Reuse::disabled ? Outcome::bypassed
                   : n == 0                                     ? Outcome::miss
                   : n == turn.full_limit                       ? Outcome::full_hit
                                                                : Outcome::partial_hit;
  report.reason = reason_for(turn, found);
}

// The most that could have been reused, at any cost.
uint32_t TurnPlanner::possible_reuse(const TurnRecord& turn, const Found& found) const {
  const bool any = books_.any();
  uint32_t possible = std::max(found.saved.state_depth, any ? found.saved.state_longest : 0);
  const bool copies = books_.traits.fork == Fork::shared || books_.traits.fork == Fork::copy;
  for (const LiveCandidate& live : found.live) {
    if (!live.can_stay && !copies) continue;
    const uint32_t most = std::min(live.common, turn.limit);
    possible = std::max(possible, resumable(books_.traits, live.held, most, !live.can_stay));
  }
  if (any) return std::max(possible, found.saved.segments);
  if (found.checkpoints.empty()) return possible;
  const uint32_t under_checkpoints = std::max(found.saved.segments, found.live_matched);
  return std::max(possible, std::min(found.checkpoints.back(), under_checkpoints));
}

SequenceMiss TurnPlanner::reason_for(const TurnRecord& turn, const Found& found) const {
  const uint32_t n = turn.plan.available;
  if (turn.bypass || turn.reuse == Reuse::disabled) return SequenceMiss::bypassed;
  if (n == turn.full_limit && n != 0) return SequenceMiss::none;
  if (turn.full_limit == 0) return SequenceMiss::too_short;
  if (!found.scope_known) return SequenceMiss::unknown_scope;
  if (n == turn.limit && turn.limit < turn.full_limit) return SequenceMiss::at_most;
  if (found.matched <= n) {
    const bool media =
        std::any_of(turn.text.spans.begin(), turn.text.spans.end(),
                    [&](const key::MediaSpan& span) { return span.begin == found.matched; });
    return media ? SequenceMiss::media : SequenceMiss::first_use;
  }
  if (found.by_mode > n && found.by_mode >= found.live_matched) return SequenceMiss::mode;
  if (turn.limit < turn.full_limit && turn.limit == 0) return SequenceMiss::at_most;
  if (possible_reuse(turn, found) > n) return SequenceMiss::not_worth;
  return books_.any() ? SequenceMiss::not_saved : SequenceMiss::no_rewind;
}

void TurnPlanner::describe(TurnRecord& turn) const {
  const Plan& plan = turn.plan;
  std::array<uint32_t, kStepCount>& steps = turn.report.steps;
  const auto step = [&](Step kind) -> uint32_t& { return steps[static_cast<size_t>(kind)]; };
  steps = {};
  if (plan.state_depth != 0) {
    step(Step::state) = plan.available;
  } else {
    if (plan.base == Base::stay) {
      const bool cut = books_.room.length(SequenceId{plan.sequence}) > plan.base_tokens;
      step(cut ? Step::trim : Step::stay) = plan.base_tokens;
    } else if (plan.base == Base::fork) {
      step(Step::fork) = plan.base_tokens;
    }
    if (plan.segments_to != 0) step(Step::segments) = plan.segments_to - plan.base_tokens;
  }
  step(Step::checkpoint) = plan.checkpoint;
}

void TurnPlanner::note_media(TurnRecord& turn) {
  turn.media_to_process.clear();
  for (uint32_t i = 0; i < turn.item_ends.size(); ++i) {
    if (turn.item_ends[i] > turn.report.reused_tokens) turn.media_to_process.push_back(i);
  }
  turn.report.media_to_process = static_cast<uint32_t>(turn.media_to_process.size());
}

}  // namespace stemma::sequence
