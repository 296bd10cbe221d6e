// The report of a sweep: one HTML page that needs nothing else to be shown.
//
// Top to bottom: the recommendation, hit-ratio curves, how far each policy stays behind the bound, memory
// saved against `lru` at equal hits, hits by depth and by session, how long blocks wait for their next
// use, and the numbers. The page draws itself with its own script, from data that stands in it as JSON.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/replay.h"
#include "replay/report_data.h"

namespace stemma::replay {

struct ReportInput {
  const Trace& trace;
  const std::vector<ReplayResult>& results;  // Of sweep(), with kept request hits.
  const std::vector<std::string>& policies;
  const std::vector<uint64_t>& capacities;
  uint64_t kv_bytes_per_token = 0;  // 0: sizes are in blocks.
};

std::string report_page(const ReportInput& input);
// What the page draws; an object of JSON.
std::string report_json(const ReportInput& input);

}  // namespace stemma::replay
