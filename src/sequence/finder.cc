#include "sequence/finder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma::sequence {

void Finder::find(TurnRecord& turn, Found& found, Holding holding, uint32_t fixed,
                  const Excluded& excluded) {
  if (!turn.bypass) {
    find_live(turn, found, holding, fixed, excluded);
    find_saved(turn, found, holding, excluded);
  }
  find_vacant(turn, found, fixed);
}

void Finder::find_live(TurnRecord& turn, Found& found, Holding holding, uint32_t fixed,
                       const Excluded& excluded) {
  books_.live.match(turn.scope, turn.text.all(), found.matches);
  found.scope_known = books_.live.knows(turn.scope);
  const bool allowed = allows(turn.reuse, Reuse::live);
  for (const LiveIndex::Match& match : found.matches) {
    const uint32_t s = to_index(match.sequence);
    const uint32_t common = turn.text.floor(match.positions);
    found.matched = std::max(found.matched, common);
    if (!allowed) {
      found.by_mode = std::max(found.by_mode, common);
      continue;
    }
    found.live_matched = std::max(found.live_matched, common);
    const bool can_stay =
        fixed == kNoSequence ? books_.at(s).state == SequenceState::idle : s == fixed;
    if (!can_stay && excluded.forks) continue;
    // Nobody knows what a turn that has not been executed yet will leave of it.
    if (!can_stay && books_.at(s).turn != nullptr && !in_turn(books_.at(s))) continue;
    Held held = books_.resumable_part(s);
    // Passes of other sequences recycle the cells behind this one's window, so it may be able to go
    // back less far than recorded.
    if (holding == Holding::yes && books_.traits.rewind == Rewind::window && common < held.end)
      held = books_.ask(s);
    if (!held.whole || held.end != books_.room.length(match.sequence)) continue;
    found.live.push_back({s, common, held, can_stay, books_.is_own(turn, s)});
  }
}

void Finder::find_vacant(const TurnRecord& turn, Found& found, uint32_t fixed) {
  if (fixed != kNoSequence) {
    found.vacant.push_back({fixed, 0});
    return;
  }
  const auto add = [&](uint32_t s, uint64_t loss_ns) {
    const bool there = std::any_of(found.vacant.begin(), found.vacant.end(),
                                   [&](const Vacancy& it) { return it.sequence == s; });
    if (!there && found.vacant.size() < 3) found.vacant.push_back({s, loss_ns});
  };
  const PlanInput input = plan_input(turn);
  // A conversation that shares nothing with its own past takes its old sequence.
  if (turn.session != SessionTable::kNone) {
    const Session& session = books_.sessions[turn.session];
    const uint32_t s = to_index(session.sequence);
    if (books_.records[s].state == SequenceState::idle && books_.records[s].session == session.id &&
        books_.records[s].generation == session.generation &&
        std::none_of(found.matches.begin(), found.matches.end(),
                     [&](const LiveIndex::Match& it) { return to_index(it.sequence) == s; })) {
      add(s, turn.exclusive ? 0 : price_of(input, 0, books_.room.length(SequenceId{s}), true));
    }
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state == SequenceState::free) add(s, 0);
  }
  for (uint32_t s = books_.idle_order.front(0);
       s != base::IndexLists::kNone && found.vacant.size() < 3; s = books_.idle_order.after(s)) {
    add(s, price_of(input, 0, books_.room.length(SequenceId{s}), books_.is_own(turn, s)));
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state == SequenceState::broken) add(s, input.costs.load.call_ns);
  }
}

void Finder::find_segments(TurnRecord& turn, Found& found, Holding holding) {
  const Prompt prompt = turn.text.prompt();
  const bool allowed = allows(turn.reuse, Reuse::saved);
  SegmentStore::Reach reach;
  if (holding == Holding::yes && allowed) {
    turn.segments =
        books_.segments->hold(turn.scope, prompt, turn.limit, turn.tenant, turn.retain.get());
    reach = {turn.segments.usable, turn.segments.matched, turn.segments.scope_known};
  } else {
    reach = books_.segments->reach(turn.scope, prompt, turn.limit);
  }
  const uint32_t matched = turn.text.floor(reach.matched);
  found.scope_known = found.scope_known || reach.scope_known;
  found.matched = std::max(found.matched, matched);
  if (allowed) {
    found.saved.segments = reach.usable;
  } else {
    found.by_mode = std::max(found.by_mode, matched);
  }
}

void Finder::find_states(TurnRecord& turn, Found& found) {
  found.state = books_.states->find(turn.scope, turn.text, turn.limit);
  const uint32_t exact = found.state.exact.depth;
  const uint32_t common = turn.text.floor(found.state.longest.common);
  found.scope_known = found.scope_known || found.state.longest;
  found.matched = std::max({found.matched, exact, common});
  if (allows(turn.reuse, Reuse::saved)) {
    found.saved.state_depth = exact;
    found.saved.state_longest = common;
    found.saved.state_longest_depth = found.state.longest.depth;
  } else {
    found.by_mode = std::max({found.by_mode, exact, common});
  }
}

void Finder::find_saved(TurnRecord& turn, Found& found, Holding holding, const Excluded& excluded) {
  if (books_.segments != nullptr && !excluded.segments) find_segments(turn, found, holding);
  if (books_.states != nullptr && !excluded.states) find_states(turn, found);
  if (books_.checkpoints != nullptr && allows(turn.reuse, Reuse::saved) && !excluded.checkpoints) {
    find_checkpoints(turn, found);
  }
}

void Finder::find_checkpoints(TurnRecord& turn, Found& found) {
  // One for each depth to which the full-attention part can be available.
  std::vector<uint32_t> reaches{found.saved.segments};
  for (const LiveCandidate& live : found.live) {
    reaches.push_back(std::min({live.common, live.held.end, turn.limit}));
  }
  std::sort(reaches.begin(), reaches.end());
  reaches.erase(std::unique(reaches.begin(), reaches.end()), reaches.end());
  for (uint32_t reach : reaches) {
    if (reach == 0 || (!found.checkpoints.empty() && found.checkpoints.back() == reach)) continue;
    const StateCandidate entry = books_.checkpoints->find(turn.scope, turn.text, reach).exact;
    if (!entry || (!found.checkpoints.empty() && found.checkpoints.back() == entry.depth)) continue;
    found.checkpoints.push_back(entry.depth);
    found.checkpoint_entries.push_back(entry);
  }
  found.saved.checkpoints = found.checkpoints;
}

void Finder::hold_anchor(TurnRecord& turn, const Found& found) {
  turn.state = {};
  const Plan& plan = turn.plan;
  StateCandidate entry;
  if (plan.state_depth != 0) {
    entry = plan.available == found.state.exact.depth ? found.state.exact : found.state.longest;
  } else if (plan.checkpoint != 0) {
    const auto at =
        std::lower_bound(found.checkpoints.begin(), found.checkpoints.end(), plan.checkpoint);
    entry = found.checkpoint_entries[static_cast<size_t>(at - found.checkpoints.begin())];
  } else {
    return;
  }
  Result<StateLease> lease =
      (plan.state_depth != 0 ? books_.states : books_.checkpoints)->lease(entry);
  STEMMA_CHECK(lease.has_value());  // Nothing has changed since it was found.
  turn.state = *std::move(lease);
}

bool Finder::take_logits(TurnRecord& turn, const StateCandidate& entry) {
  Result<StateLease> lease = books_.logits->lease(entry);
  if (!lease) return false;
  const Result<SavedState> read = lease->read();
  if (!read) {
    books_.logits->remove(*lease);
    ++books_.stats.quarantined;
    return false;
  }
  books_.logits->used(*lease, books_.touch_of(turn.retain, turn.prompt_tokens));
  // They were saved as bytes; the store keeps them aligned.
  turn.logits_span = {reinterpret_cast<const float*>(read->state.data()),
                      read->state.size() / sizeof(float)};
  turn.logits = *std::move(lease);
  return true;
}

void Finder::find_logits(TurnRecord& turn, uint32_t at_most, Holding holding) {
  const StateCandidate entry = books_.logits->find(turn.scope, turn.text, turn.prompt_tokens).exact;
  if (!entry || entry.depth != turn.prompt_tokens) return;
  if (holding == Holding::yes && !take_logits(turn, entry)) return;
  turn.report.logits = true;
  turn.full_limit = turn.prompt_tokens;
  turn.limit = turn.text.floor(std::min(turn.prompt_tokens, at_most));
}

PlanInput Finder::plan_input(const TurnRecord& turn) const {
  PlanInput input;
  input.traits = books_.traits;
  input.limit = turn.limit;
  input.prompt = turn.prompt_tokens;
  input.segment_tokens = books_.options.segment_tokens;
  input.costs = books_.meter.costs();
  input.beside_cells = books_.cells_in_turns(turn.sequence);
  input.restorable = books_.segments != nullptr || books_.states != nullptr;
  return input;
}

}  // namespace stemma::sequence
