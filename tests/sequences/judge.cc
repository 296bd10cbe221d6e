#include "sequences/judge.h"

#include <algorithm>
#include <numeric>

namespace stemma::schedules {
namespace {

uint32_t of(const SequenceReport& report, Step step) {
  return report.steps[static_cast<uint32_t>(step)];
}

std::string number(const char* name, uint64_t found, const char* relation, uint64_t wanted) {
  return std::string(name) + " is " + std::to_string(found) + ", not " + relation +
         std::to_string(wanted);
}

std::string equal(const char* name, uint64_t found, uint64_t wanted) {
  return found == wanted ? "" : number(name, found, "", wanted);
}

std::string at_most(const char* name, uint64_t found, uint64_t limit) {
  return found <= limit ? "" : number(name, found, "at most ", limit);
}

// The first complaint that is not empty.
std::string first_of(std::initializer_list<std::string> all) {
  for (const std::string& one : all) {
    if (!one.empty()) return one;
  }
  return "";
}

bool has(Reuse mode, Reuse part) {
  return (static_cast<uint32_t>(mode) & static_cast<uint32_t>(part)) != 0;
}

std::string judge_steps(const SequenceReport& r, Reuse mode, const Situation& situation) {
  const bool live = of(r, Step::stay) + of(r, Step::trim) + of(r, Step::fork) > 0;
  const bool saved = of(r, Step::segments) + of(r, Step::state) + of(r, Step::checkpoint) > 0;
  if (live && !has(mode, Reuse::live)) return "live contents were reused, against the mode";
  if (saved && !has(mode, Reuse::saved)) return "saved contents were reused, against the mode";
  if (saved && situation.cache.saved_bytes == 0) return "nothing is saved, and yet it was loaded";
  const FakeSequences::Options& engine = situation.engine;
  if (of(r, Step::fork) > 0 && engine.fork != Fork::shared && engine.fork != Fork::copy) {
    return "this engine does not copy";
  }
  if (of(r, Step::segments) > 0 && !engine.segments) return "this engine has no segments";
  if (of(r, Step::checkpoint) > 0 && !engine.checkpoints) return "this engine has no checkpoints";
  if (of(r, Step::state) > 0 && engine.fork == Fork::none) return "this engine saves no states";
  if (!saved && r.restored_bytes > 0 && r.failures == 0) return "bytes were restored by no step";
  const uint64_t sum =
      std::accumulate(r.steps.begin(), r.steps.end(), uint64_t{0}) - of(r, Step::checkpoint);
  return first_of(
      {equal("the sum of the steps", sum, r.reused_tokens),
       at_most("the depth of the checkpoint", of(r, Step::checkpoint), r.reused_tokens)});
}

std::string judge_outcome(const SequenceReport& r, uint32_t limit, const TurnOptions& options,
                          Reuse mode) {
  const bool none = r.reason == SequenceMiss::none;
  if (options.bypass) {
    return r.outcome == Outcome::bypassed && r.reason == SequenceMiss::bypassed
               ? ""
               : "a bypass is not reported as one";
  }
  if (mode == Reuse::disabled) {
    const bool said = r.reason == SequenceMiss::mode || r.reason == SequenceMiss::bypassed;
    return said ? "" : "that nothing may be reused is not the reason";
  }
  switch (r.outcome) {
    case Outcome::full_hit:
      return r.reused_tokens == limit && limit > 0 && none ? "" : "that is no full hit";
    case Outcome::partial_hit:
      return r.reused_tokens > 0 && r.reused_tokens < limit && !none ? ""
                                                                     : "that is no partial hit";
    case Outcome::miss: return r.reused_tokens == 0 && !none ? "" : "that is no miss";
    case Outcome::bypassed: return "nobody asked for a bypass";
    case Outcome::refused: return "a turn that was refused";
  }
  return "an outcome there is not";
}

}  // namespace

std::string to_text(const SequenceReport& r) {
  std::string text = "{matched " + std::to_string(r.matched_tokens) + ", reused " +
                     std::to_string(r.reused_tokens) + " of " + std::to_string(r.prompt_tokens);
  for (uint32_t i = 0; i < kStepCount; ++i) {
    if (r.steps[i] == 0) continue;
    text += std::string(", ") + to_string(static_cast<Step>(i)) + " " + std::to_string(r.steps[i]);
  }
  if (r.failures > 0) text += ", failures " + std::to_string(r.failures);
  if (r.victims > 0) text += ", victims " + std::to_string(r.victims);
  if (r.logits) text += ", logits";
  return text + ", " + to_string(r.outcome) + ", " + to_string(r.reason) + "}";
}

std::string judge_report(const SequenceReport& r, const Text& prompt, const TurnOptions& options,
                         const Situation& situation) {
  const auto mode = static_cast<Reuse>(static_cast<uint32_t>(situation.cache.reuse) &
                                       static_cast<uint32_t>(options.reuse));
  // With kept logits, nothing of a prompt needs to be evaluated.
  const uint32_t limit =
      r.logits ? prompt.size() : before_last_units(prompt, std::max(1U, options.evaluate_at_least));
  const std::string wrong = first_of(
      {equal("prompt_tokens", r.prompt_tokens, prompt.size()),
       equal("reused and evaluated", uint64_t{r.reused_tokens} + r.evaluated_tokens, prompt.size()),
       at_most("reused_tokens", r.reused_tokens, std::min(limit, options.at_most)),
       at_most("reused_tokens", r.reused_tokens, r.matched_tokens),
       at_most("matched_tokens", r.matched_tokens, prompt.size()),
       equal("media_to_process", r.media_to_process, items_beyond(prompt, r.reused_tokens)),
       inside_unit(prompt, r.reused_tokens) ? "the reuse ends inside a unit" : "",
       r.logits && (!options.want_logits || situation.cache.logits_bytes == 0) ? "unwanted logits"
                                                                               : "",
       options.bypass && r.reused_tokens > 0 ? "something was reused in a bypass" : "",
       judge_steps(r, mode, situation), judge_outcome(r, limit, options, mode)});
  return wrong.empty() ? "" : wrong + " " + to_text(r);
}

std::string judge_same_plan(const SequenceReport& lookup, const SequenceReport& begun) {
  const bool same = lookup.reused_tokens == begun.reused_tokens &&
                    lookup.matched_tokens == begun.matched_tokens && lookup.steps == begun.steps &&
                    lookup.logits == begun.logits && lookup.outcome == begun.outcome &&
                    lookup.reason == begun.reason;
  if (same) return "";
  // Part of a segment takes a slot to be held, which may not be there: then whole ones serve.
  const bool shorter = begun.reused_tokens <= lookup.reused_tokens &&
                       begun.matched_tokens == lookup.matched_tokens &&
                       lookup.logits == begun.logits;
  if (shorter) return "";
  return "lookup said " + to_text(lookup) + " and begin planned " + to_text(begun);
}

std::string judge_turn(const Live& live, const Situation& situation) {
  const Turn& turn = live.turn;
  if (!turn.active()) return "the turn is not active";
  if (live.stale || live.failed) return "";
  std::string wrong =
      first_of({equal("length", turn.length(), live.words.size()),
                at_most("available", turn.available(), turn.computed()),
                at_most("computed", turn.computed(), turn.length()),
                at_most("next_stop", turn.next_stop(), turn.length()),
                to_index(turn.sequence()) < situation.engine.sequences ? "" : "no such sequence"});
  if (!wrong.empty()) return wrong;
  if (!live.executed) return equal("available before execute", turn.available(), 0);
  if (turn.computed() < turn.length() && turn.next_stop() <= turn.computed()) {
    return number("next_stop", turn.next_stop(), "more than ", turn.computed());
  }
  const std::span<const float> logits = turn.logits();
  if (logits.empty()) return "";
  const auto wanted = logits_after(live.prompt_words);
  return std::ranges::equal(logits, wanted) ? "" : "the logits are those of other words";
}

std::string judge_stats(const SequenceStats& s, std::span<const Live> live,
                        const Situation& situation, bool crowded) {
  const auto count = [&](auto predicate) {
    return static_cast<uint64_t>(std::ranges::count_if(live, predicate));
  };
  const uint64_t holders = count([](const Live& one) { return !one.stale; });
  const uint64_t outcomes = std::accumulate(s.outcomes.begin(), s.outcomes.end(), uint64_t{0});
  std::string wrong =
      first_of({equal("sequences", s.sequences, situation.engine.sequences),
                equal("free, idle, leased and broken sequences",
                      uint64_t{s.free_sequences} + s.idle_sequences + s.leased_sequences +
                          s.broken_sequences,
                      s.sequences),
                at_most("leased_sequences", s.leased_sequences, holders),
                at_most("turns under way", holders, s.leased_sequences + s.broken_sequences),
                at_most("saved_bytes", s.saved_bytes, situation.cache.saved_bytes),
                at_most("segments, states and checkpoints",
                        s.segment_bytes + s.state_bytes + s.checkpoint_bytes, s.saved_bytes),
                at_most("logits_bytes", s.logits_bytes, situation.cache.logits_bytes),
                // One more is under way.
                at_most("pending", s.pending, situation.cache.pending_captures + 1U),
                at_most("sessions", s.sessions, situation.cache.sessions),
                at_most("turns with an outcome", outcomes, s.turns),
                equal("reused and evaluated positions", s.reused_tokens + s.evaluated_tokens,
                      s.prompt_tokens)});
  if (!wrong.empty()) return wrong;
  if (situation.faults == Faults::none) {
    const uint64_t failures = std::accumulate(s.failures.begin(), s.failures.end(), uint64_t{0});
    // A window that cannot be recycled may leave no room for one that is loaded.
    const bool innocent = situation.engine.shares_window || crowded;
    std::string failed = first_of(
        {equal("leased_sequences", s.leased_sequences, holders), equal("broken", s.broken, 0),
         innocent ? "" : equal("failed steps", failures, 0),
         equal("captures that failed", s.captures[static_cast<uint32_t>(CaptureFate::failed)], 0)});
    if (!failed.empty()) return failed;
  }
  return live.empty() ? equal("turns with an outcome", outcomes, s.turns) : "";
}

std::string judge_others(const View& before, const View& after, std::span<const Live> live,
                         std::span<const uint32_t> actors) {
  for (uint32_t s = 0; s < before.infos.size(); ++s) {
    if (std::ranges::find(actors, s) != actors.end()) continue;
    const SequenceInfo& was = before.infos[s];
    const SequenceInfo& is = after.infos[s];
    const bool leased = std::ranges::any_of(live, [&](const Live& one) {
      return !one.stale && !one.failed && to_index(one.turn.sequence()) == s;
    });
    const bool kept = was.state == SequenceState::idle && is.state == SequenceState::idle &&
                      was.generation == is.generation;
    const std::string name = "sequence " + std::to_string(s);
    if (leased && (was.state != is.state || was.generation != is.generation ||
                   was.length != is.length || was.approximate != is.approximate)) {
      return name + " is leased, and what is known of it was changed by another's operation";
    }
    if ((leased || kept) && before.prints[s] != after.prints[s]) {
      return name + (leased ? " is leased" : " is idle") + ", and another's operation changed it";
    }
  }
  return "";
}

}  // namespace stemma::schedules
