#include "bench/sequences/baseline_mistral.h"

#include <utility>

namespace stemma::bench::sequences {
uint64_t MistralRs::stored_bytes() const {
  uint64_t bytes = 0;
  for (const WholeState& entry : entries_) bytes += entry.bytes.size();
  return bytes;
}

bool MistralRs::can_rewind(uint32_t length, uint32_t n) const {
  switch (setting_.model) {
    case Model::full: return true;
    case Model::window: return n == length || length <= kWindowTokens;
    case Model::hybrid: return n == length;
  }
  return false;
}

BaselinePolicy::Start MistralRs::start(const Request& request) {
  const WholeState* best = nullptr;
  uint32_t most = 0;
  for (const WholeState& entry : entries_) {
    const uint32_t common = common_prefix(entry.tokens, request.prompt);
    if (common <= most || !can_rewind(static_cast<uint32_t>(entry.tokens.size()), common)) continue;
    best = &entry;
    most = common;
  }
  if (best == nullptr || most == request.prompt.size()) return {.sequence = kWorking, .reused = 0};
  const auto length = static_cast<uint32_t>(best->tokens.size());
  if (!load(kWorking, Part::state, {0, length}, best->bytes)) most = 0;
  if (most > 0) trim(kWorking, most);
  return {.sequence = kWorking, .reused = most};
}

void MistralRs::finish(const Request& request, SequenceId sequence) {
  WholeState added{.tokens = request.whole(), .bytes = {}};
  const auto length = static_cast<uint32_t>(added.tokens.size());
  added.bytes = save(sequence, Part::state, {0, length});
  clear(sequence);
  bool known = false;
  for (WholeState& entry : entries_) {
    if (entry.tokens != added.tokens) continue;
    entry.bytes = std::move(added.bytes);
    known = true;
    break;
  }
  if (!known) entries_.push_back(std::move(added));
  while (entries_.size() > kEntries || stored_bytes() > budget_bytes()) entries_.pop_front();
}

}  // namespace stemma::bench::sequences
