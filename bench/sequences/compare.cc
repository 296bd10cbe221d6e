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
#include "bench/sequences/ours.h"
#include "bench/sequences/whole_states.h"

namespace stemma::bench::sequences {
namespace {

template <class P, class... Arguments>
Contender contender(std::string name, Kind kind, Arguments... arguments) {
  return {std::move(name), kind,
          [=](const Setting& setting) { return std::make_unique<P>(setting, arguments...); }};
}

}  // namespace

namespace {

uint64_t bytes_of_longest(const Workload& workload, Model model) {
  const EngineTraits traits =
      test::FakeSequences(engine_options(setting_of(workload, model, Memory::normal))).traits();
  std::vector<Tokens> texts;
  for (const Request& request : workload.requests) texts.push_back(request.whole());
  std::ranges::sort(texts);
  uint64_t bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    // In this order the texts that begin with a text follow it directly.
    if (i + 1 < texts.size() && common_prefix(texts[i], texts[i + 1]) == texts[i].size()) continue;
    bytes += traits.fixed_bytes + texts[i].size() * traits.bytes_per_token;
    if (traits.checkpoints) bytes += traits.checkpoint_bytes - traits.fixed_bytes;
  }
  return bytes;
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
          contender<WholeStates>("whole states", Kind::reference),
          contender<Ours>("Stemma", Kind::ours, "lru"),
          contender<Ours>("Stemma, default policy", Kind::variant, "default")};
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
  bytes.longest_states = bytes_of_longest(workload, model);
  for (const Contender& contender : contenders()) {
    if (contender.kind != Kind::reference && contender.kind != Kind::ours) continue;
    const std::unique_ptr<Policy> policy = contender.make(setting);
    const uint64_t peak = run(*policy, workload).stored_bytes_peak;
    (contender.kind == Kind::ours ? bytes.ours : bytes.whole_states) = peak;
  }
  return bytes;
}

}  // namespace stemma::bench::sequences
