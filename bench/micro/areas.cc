#include "bench/micro/areas.h"

namespace stemma::bench {

std::vector<Benchmark> all_benchmarks(const Settings& settings) {
  std::vector<Benchmark> out;
  add_full_hit(out);
  add_miss(out);
  add_evict(out);
  add_partial_match(out);
  add_growth(out);
  add_memory(out);
  add_retention(out);
  add_threads(settings, out);
  add_pressure(out);
  add_capi(out);
  add_sequence(out);
  return out;
}

}  // namespace stemma::bench
