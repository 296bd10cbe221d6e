#include "bench/sequences/whole_states.h"

#include <algorithm>
#include <utility>

namespace stemma::bench::sequences {
uint64_t WholeStates::stored_bytes() const {
  uint64_t bytes = 0;
  for (const WholeState& entry : entries_) bytes += entry.bytes.size();
  return bytes;
}

bool WholeStates::serves(uint32_t length, uint32_t n) const {
  // A blob has no more of a window than it must.
  uint32_t begin = 0;
  if (setting_.model == Model::window) begin = length - std::min(length, kWindowTokens);
  if (setting_.model == Model::hybrid) begin = length - 1;
  return can_resume(engine_.traits(), {begin, length}, n);
}

BaselinePolicy::Start WholeStates::start(const Request& request) {
  auto best = entries_.end();
  uint32_t most = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const uint32_t n = std::min(common_prefix(entry->tokens, request.prompt),
                                static_cast<uint32_t>(request.prompt.size()) - 1);
    if (n <= most || !serves(static_cast<uint32_t>(entry->tokens.size()), n)) continue;
    most = n;
    best = entry;
  }
  if (best == entries_.end()) return {.sequence = kWorking, .reused = 0};
  entries_.splice(entries_.end(), entries_, best);
  const auto length = static_cast<uint32_t>(best->tokens.size());
  if (!load(kWorking, Part::state, {0, length}, best->bytes)) most = 0;
  if (most > 0) trim(kWorking, most);
  return {.sequence = kWorking, .reused = most};
}

void WholeStates::finish(const Request& request, SequenceId sequence) {
  WholeState added{.tokens = request.whole(), .bytes = {}};
  const auto length = static_cast<uint32_t>(added.tokens.size());
  added.bytes = save(sequence, Part::state, {0, length});
  clear(sequence);
  std::erase_if(entries_, [&](const WholeState& entry) {
    const auto end = static_cast<uint32_t>(entry.tokens.size());
    return common_prefix(entry.tokens, added.tokens) == end && serves(length, end);
  });
  entries_.push_back(std::move(added));
  while (stored_bytes() > budget_bytes()) entries_.pop_front();
}

}  // namespace stemma::bench::sequences
