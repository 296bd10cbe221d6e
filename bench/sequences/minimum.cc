#include "bench/sequences/minimum.h"

#include <algorithm>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

std::vector<uint32_t> minimum(const Workload& workload) {
  std::vector<uint32_t> evaluated;
  std::vector<Tokens> seen;
  for (const Request& request : workload.requests) {
    uint32_t known = 0;
    for (const Tokens& text : seen) known = std::max(known, common_prefix(text, request.prompt));
    const auto size = static_cast<uint32_t>(request.prompt.size());
    evaluated.push_back(std::max(size - known, 1U));
    seen.push_back(request.whole());
  }
  return evaluated;
}

}  // namespace stemma::bench::sequences
