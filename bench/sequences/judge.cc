#include "bench/sequences/judge.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace stemma::bench::sequences {
namespace {

constexpr double kTolerance = 200;  // One in so many.
constexpr double kTimesFewerBytes = 2;

std::string row_name(Model model, const std::string& workload, const char* what) {
  std::string name = std::string(to_string(model)) + "_" + workload + "_" + what;
  std::ranges::replace(name, ' ', '_');
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string megabytes(uint64_t bytes) {
  return std::to_string(std::lround(static_cast<double>(bytes) * kByteFactor * 1e-6)) + " MB";
}

// The policies that were right, the best one first.
std::vector<Baseline> ranked(const Comparison& comparison, size_t workload) {
  std::vector<Baseline> ranking;
  for (const Line& line : comparison.lines) {
    const Outcome& outcome = line.outcomes[workload];
    if (line.kind != Kind::baseline || outcome.wrong_requests > 0) continue;
    ranking.push_back({line.name, static_cast<double>(outcome.evaluated), 0});
  }
  std::ranges::sort(ranking, {}, [](const Baseline& baseline) {
    return std::pair<double, std::string_view>(baseline.value, baseline.name);
  });
  return ranking;
}

}  // namespace

void judge_tokens(const Comparison& comparison, Sheet& sheet) {
  const auto ours = std::ranges::find(comparison.lines, Kind::ours, &Line::kind);
  for (size_t i = 0; i < comparison.workloads.size(); ++i) {
    const std::string name = row_name(comparison.model, comparison.workloads[i], "tokens");
    const std::string note = "minimum " + std::to_string(comparison.minimum[i]);
    const std::vector<Baseline> ranking = ranked(comparison, i);
    const double best = ranking.front().value;
    if (ours == comparison.lines.end()) {
      sheet.info(name, best, "tokens").with_note(ranking.front().name + "; " + note);
      continue;
    }
    const Outcome& outcome = ours->outcomes[i];
    const bool above = best > static_cast<double>(comparison.minimum[i]);
    Row& row = sheet.at_most(name, static_cast<double>(outcome.evaluated), "tokens",
                             above ? best - 1 : best + best / kTolerance);
    for (const Baseline& baseline : ranking) row.against(baseline.name, baseline.value);
    row.wrong = outcome.wrong_requests > 0;
    row.with_note(row.wrong ? outcome.first_wrong : note);
  }
}

void judge_bytes(const Workload& workload, Model model, Sheet& sheet) {
  const StoredBytes bytes = compare_bytes(workload, model);
  const std::string name = row_name(model, workload.name, "fewer_bytes");
  const std::string others = "whole states " + megabytes(bytes.whole_states) +
                             ", only the longest " + megabytes(bytes.longest_states);
  if (bytes.ours == 0) {
    sheet.info(name, 1, "x").with_note(others);
    return;
  }
  const auto times = static_cast<double>(bytes.whole_states) / static_cast<double>(bytes.ours);
  sheet.at_least(name, times, "x", kTimesFewerBytes)
      .with_note("ours " + megabytes(bytes.ours) + ", " + others);
}

}  // namespace stemma::bench::sequences
