// The report of a sweep: one self-contained HTML page.
//
// Top to bottom: the recommendation, hit-ratio curves, how far each policy is below the bound,
// memory saved against `lru` at equal hits, hits by depth and by session, how long blocks wait for
// their next use, and the numbers. The page's own script draws it from JSON data inside the page.
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
  const std::vector<ReplayResult>& results;  // From sweep(), with kept request hits.
  const std::vector<std::string>& policies;
  const std::vector<uint64_t>& capacities;
  uint64_t kv_bytes_per_token = 0;  // 0: sizes are in blocks.
};

std::string report_page(const ReportInput& input);
// The data that the page draws: a JSON object.
std::string report_json(const ReportInput& input);

}  // namespace stemma::replay
