#include "bench/sequences/baseline_ferrum_kv.h"

#include <algorithm>
#include <utility>

namespace stemma::bench::sequences {
uint64_t FerrumKv::stored_bytes() const {
  uint64_t bytes = 0;
  for (const WholeState& entry : entries_) bytes += entry.bytes.size() + kLogitsBytes;
  return bytes;
}

BaselinePolicy::Start FerrumKv::start(const Request& request) {
  const auto found = std::ranges::find(entries_, request.prompt, &WholeState::tokens);
  if (found == entries_.end()) return {.sequence = kWorking, .reused = 0};
  entries_.splice(entries_.end(), entries_, found);
  const auto size = static_cast<uint32_t>(request.prompt.size());
  const bool loaded = load(kWorking, Part::state, {0, size}, found->bytes);
  return {.sequence = kWorking, .reused = loaded ? size : 0};
}

void FerrumKv::prompt_done(const Request& request, SequenceId sequence) {
  if (setting_.model == Model::hybrid) return;
  if (!entries_.empty() && entries_.back().tokens == request.prompt) return;  // It was a hit.
  const auto size = static_cast<uint32_t>(request.prompt.size());
  entries_.push_back({.tokens = request.prompt, .bytes = save(sequence, Part::state, {0, size})});
  while (entries_.size() > kEntries || stored_bytes() > budget_bytes()) entries_.pop_front();
}

void FerrumKv::finish(const Request& /*request*/, SequenceId sequence) { clear(sequence); }

}  // namespace stemma::bench::sequences
