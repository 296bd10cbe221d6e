#include "bench/sequences/whole_states.h"

#include <algorithm>
#include <utility>

namespace stemma::bench::sequences {
namespace {

constexpr SequenceId kWorking{0};

}  // namespace

uint64_t WholeStates::stored_bytes() const {
  uint64_t bytes = 0;
  for (const WholeState& entry : entries_) bytes += entry.bytes.size();
  return bytes;
}

uint32_t WholeStates::usable(const Tokens& saved, const Tokens& prompt) const {
  const auto end = static_cast<uint32_t>(saved.size());
  const uint32_t n =
      std::min(common_prefix(saved, prompt), static_cast<uint32_t>(prompt.size()) - 1);
  // A blob has no more of a window than it must.
  uint32_t begin = 0;
  if (setting_.model == Model::window) begin = end - std::min(end, kWindowTokens);
  if (setting_.model == Model::hybrid) begin = end - 1;
  return can_resume(engine_.traits(), {begin, end}, n) ? n : 0;
}

BaselinePolicy::Start WholeStates::start(const Request& request) {
  auto best = entries_.end();
  uint32_t most = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const uint32_t n = usable(entry->tokens, request.prompt);
    if (n <= most) continue;
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
    return common_prefix(entry.tokens, added.tokens) == entry.tokens.size();
  });
  entries_.push_back(std::move(added));
  while (stored_bytes() > budget_bytes()) entries_.pop_front();
}

}  // namespace stemma::bench::sequences
