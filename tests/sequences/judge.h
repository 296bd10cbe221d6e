// What must hold, whatever a schedule does: pure functions that return "" or the mistake.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sequences/live.h"
#include "sequences/situation.h"
#include "stemma/sequence.h"

namespace stemma::schedules {

// A report of a turn, or of a lookup: its sums, its limits, and that it names only steps that this
// engine, this cache and this request have.
std::string judge_report(const SequenceReport& report, const Text& prompt,
                         const TurnOptions& options, const Situation& situation);
// Two reports of the same plan.
std::string judge_same_plan(const SequenceReport& lookup, const SequenceReport& begun);

// Compares a turn's own numbers with the schedule's model of it.
std::string judge_turn(const Live& live, const Situation& situation);

// Budgets, sums and states. `live` are the turns under way; `crowded`: steps may have failed for
// want of room.
std::string judge_stats(const SequenceStats& stats, std::span<const Live> live,
                        const Situation& situation, bool crowded);

// What must not change without an operation of its owner.
struct View {
  std::vector<SequenceInfo> infos;
  std::vector<uint64_t> prints;  // Of what is in the sequences.
};
// `actors` are the sequences that the operation may change.
std::string judge_others(const View& before, const View& after, std::span<const Live> live,
                         std::span<const uint32_t> actors);

std::string to_text(const SequenceReport& report);

}  // namespace stemma::schedules
