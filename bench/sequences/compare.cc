#include "bench/sequences/compare.h"

#include <algorithm>
#include <numeric>

#include "bench/sequences/baseline_ferrum_kv.h"
#include "bench/sequences/baseline_ferrum_models.h"
#include "bench/sequences/baseline_llama_server.h"
#include "bench/sequences/baseline_mistral.h"
#include "bench/sequences/baseline_oxide.h"
#include "bench/sequences/baseline_sipp.h"
#include "bench/sequences/minimum.h"
#include "bench/sequences/whole_states.h"

namespace stemma::bench::sequences {
namespace {

template <class P, class... Arguments>
Contender contender(std::string name, Kind kind, Arguments... arguments) {
  return {std::move(name), kind,
          [=](const Setting& setting) { return std::make_unique<P>(setting, arguments...); }};
}

}  // namespace

std::vector<Contender> contenders() {
  return {contender<MistralRs>("mistral.rs", Kind::baseline),
          contender<Sipp>("Sipp", Kind::baseline),
          contender<FerrumKv>("ferrum-kv", Kind::baseline),
          contender<FerrumModels>("ferrum-models", Kind::baseline),
          contender<OxideRs>("oxide-rs", Kind::baseline),
          contender<LlamaServer>("llama-server", Kind::baseline, true),
          contender<LlamaServer>("llama-server, idle kept", Kind::baseline, false),
          contender<WholeStates>("whole states", Kind::reference)};
}

Comparison compare(std::span<const Workload> workloads, Model model, Memory memory) {
  Comparison result;
  result.model = model;
  result.memory = memory;
  for (const Workload& workload : workloads) {
    const std::vector<uint32_t> tokens = minimum(workload);
    result.workloads.push_back(workload.name);
    result.minimum.push_back(std::accumulate(tokens.begin(), tokens.end(), uint64_t{0}));
  }
  for (const Contender& contender : contenders()) {
    Line& line = result.lines.emplace_back(Line{contender.name, contender.kind, {}});
    for (const Workload& workload : workloads) {
      const std::unique_ptr<Policy> policy = contender.make(setting_of(workload, model, memory));
      line.outcomes.push_back(run(*policy, workload));
    }
  }
  return result;
}

StoredBytes compare_bytes(const Workload& workload, Model model) {
  const Setting setting = setting_of(workload, model, Memory::unlimited);
  StoredBytes bytes;
  for (const Contender& contender : contenders()) {
    if (contender.kind == Kind::baseline) continue;
    const std::unique_ptr<Policy> policy = contender.make(setting);
    const uint64_t peak = run(*policy, workload).stored_bytes_peak;
    (contender.kind == Kind::ours ? bytes.ours : bytes.whole_states) = peak;
  }
  return bytes;
}

}  // namespace stemma::bench::sequences
