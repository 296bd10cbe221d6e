#include "sequences/tally.h"

#include <numeric>
#include <sstream>

namespace stemma::schedules {
namespace {

template <size_t kCount>
void add_up(std::array<uint64_t, kCount>& sum, const std::array<uint64_t, kCount>& more) {
  for (size_t i = 0; i < kCount; ++i) sum[i] += more[i];
}

template <class Enum, size_t kCount>
void show(std::ostringstream& out, const char* title, const std::array<uint64_t, kCount>& counts) {
  out << "\n  " << title << ":";
  for (size_t i = 0; i < kCount; ++i) {
    out << (i == 0 ? " " : ", ") << to_string(static_cast<Enum>(i)) << " " << counts[i];
  }
}

// Events that every long run of schedules has.
constexpr const char* kEvents[] = {
    "ended midway",     "failed passes",   "forks",           "logits kept",      "logits served",
    "media to process", "refused busy",    "rewinds",         "refused for room", "rewind refused",
    "shared forks",     "shifts",          "stops passed",    "too long",         "warmed",
    "sequences cut",    "saved parts cut", "cut beside turns"};

}  // namespace

void Tally::add(const SequenceStats& stats, const std::vector<test::PlannedFault>& happened) {
  ++schedules;
  turns += stats.turns;
  prompt_tokens += stats.prompt_tokens;
  reused_tokens += stats.reused_tokens;
  add_up(outcomes, stats.outcomes);
  add_up(reasons, stats.reasons);
  add_up(steps, stats.steps);
  add_up(step_tokens, stats.step_tokens);
  add_up(failures, stats.failures);
  add_up(captures, stats.captures);
  quarantined += stats.quarantined;
  victims += stats.victims;
  victims_saved += stats.victims_saved;
  dropped_idle += stats.dropped_idle;
  stale_calls += stats.stale_calls;
  broken += stats.broken;
  evictions += stats.segment_evictions + stats.state_evictions;
  for (const test::PlannedFault& fault : happened) {
    ++faults[static_cast<size_t>(fault.call)][static_cast<size_t>(fault.fault)];
  }
}

Tally& Tally::operator+=(const Tally& other) {
  schedules += other.schedules;
  add_up(operations, other.operations);
  for (const auto& [name, count] : other.events) events[name] += count;
  turns += other.turns;
  prompt_tokens += other.prompt_tokens;
  reused_tokens += other.reused_tokens;
  for (size_t i = 0; i < able.size(); ++i) {
    able[i].prompt_tokens += other.able[i].prompt_tokens;
    able[i].reused_tokens += other.able[i].reused_tokens;
  }
  add_up(outcomes, other.outcomes);
  add_up(reasons, other.reasons);
  add_up(steps, other.steps);
  add_up(step_tokens, other.step_tokens);
  add_up(failures, other.failures);
  add_up(captures, other.captures);
  quarantined += other.quarantined;
  victims += other.victims;
  victims_saved += other.victims_saved;
  dropped_idle += other.dropped_idle;
  stale_calls += other.stale_calls;
  broken += other.broken;
  evictions += other.evictions;
  for (size_t i = 0; i < faults.size(); ++i) add_up(faults[i], other.faults[i]);
  return *this;
}

uint64_t Tally::operation_count() const {
  return std::accumulate(operations.begin(), operations.end(), uint64_t{0});
}

Tally::Able Tally::all_able() const {
  Able all;
  for (const Able& one : able) {
    all.prompt_tokens += one.prompt_tokens;
    all.reused_tokens += one.reused_tokens;
  }
  return all;
}

std::string Tally::text() const {
  std::ostringstream out;
  out << schedules << " schedules, " << operation_count() << " operations, " << turns
      << " turns; reused " << reused_tokens << " of " << prompt_tokens
      << " positions; where it is possible, and rewind is";
  for (uint32_t i = 0; i < able.size(); ++i) {
    constexpr const char* kRewinds[] = {" any ", ", window ", ", bounded ", ", exact "};
    out << kRewinds[i] << static_cast<int>(able[i].percent()) << " %";
  }
  show<Operation>(out, "operations", operations);
  show<Outcome>(out, "outcomes", outcomes);
  show<SequenceMiss>(out, "reasons", reasons);
  show<Step>(out, "turns with step", steps);
  show<Step>(out, "positions by step", step_tokens);
  show<Step>(out, "failed steps", failures);
  show<CaptureFate>(out, "captures", captures);
  out << "\n  others: quarantined " << quarantined << ", victims " << victims << ", saved first "
      << victims_saved << ", dropped idle " << dropped_idle << ", stale calls " << stale_calls
      << ", broken " << broken << ", evictions " << evictions;
  for (const auto& [name, count] : events) out << ", " << name << " " << count;
  for (uint32_t call = 0; call < test::kCalls; ++call) {
    const uint64_t all = std::accumulate(faults[call].begin(), faults[call].end(), uint64_t{0});
    if (all == 0) continue;
    out << "\n  faults of " << test::to_string(static_cast<test::Call>(call)) << ":";
    for (uint32_t fault = 1; fault < test::kFaults; ++fault) {
      out << " " << test::to_string(static_cast<test::Fault>(fault)) << " " << faults[call][fault];
    }
  }
  return out.str();
}

std::string Tally::missing(bool with_faults) const {
  std::string names;
  const auto want = [&](uint64_t count, const std::string& name) {
    if (count == 0) names += (names.empty() ? "" : ", ") + name;
  };
  for (uint32_t i = 0; i < kOperations; ++i) {
    want(operations[i], std::string("operation ") + to_string(static_cast<Operation>(i)));
  }
  for (uint32_t i = 0; i < kStepCount; ++i) {
    const std::string name = to_string(static_cast<Step>(i));
    want(steps[i], "step " + name);
    if (with_faults) want(failures[i], "failed step " + name);
  }
  for (uint32_t i = 0; i < kSequenceMissCount; ++i) {
    const auto reason = static_cast<SequenceMiss>(i);
    if (reason == SequenceMiss::failed && !with_faults) continue;
    want(reasons[i], std::string("reason ") + to_string(reason));
  }
  for (uint32_t i = 0; i < kCaptureFateCount; ++i) {
    const auto fate = static_cast<CaptureFate>(i);
    if (fate == CaptureFate::failed && !with_faults) continue;
    want(captures[i], std::string("capture ") + to_string(fate));
  }
  for (const char* event : kEvents) {
    const auto found = events.find(event);
    want(found == events.end() ? 0 : found->second, event);
  }
  want(evictions, "evictions");
  want(victims_saved, "victims saved first");
  want(dropped_idle, "idle sequences dropped");
  want(stale_calls, "stale calls");
  if (!with_faults) return names;
  want(broken, "broken sequences");
  want(quarantined, "quarantined");
  for (uint32_t call = 0; call < test::kCalls; ++call) {
    for (uint32_t fault = 1; fault < test::kFaults; ++fault) {
      const auto c = static_cast<test::Call>(call);
      const auto f = static_cast<test::Fault>(fault);
      if (c != test::Call::held && test::possible(c, f)) {  // held() lies in schedules of its own.
        want(faults[call][fault], "fault " + test::to_string(c) + " " + test::to_string(f));
      }
    }
  }
  return names;
}

}  // namespace stemma::schedules
