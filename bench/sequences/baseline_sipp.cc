#include "bench/sequences/baseline_sipp.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stemma::bench::sequences {

Sipp::Sipp(const Setting& setting) : BaselinePolicy(setting), slots_(setting.sequences) {}

uint64_t Sipp::stored_bytes() const {
  uint64_t bytes = 0;
  for (const Snapshot& snapshot : snapshots_) bytes += snapshot.bytes.size();
  return bytes;
}

void Sipp::free(uint32_t slot) {
  clear(SequenceId{slot});
  slots_[slot] = {};
}

uint32_t Sipp::admit(const std::string& session) {
  const auto own = std::ranges::find(slots_, session, &Slot::session);
  if (own != slots_.end()) return static_cast<uint32_t>(own - slots_.begin());
  const auto unused = std::ranges::find_if(slots_, [](const Slot& s) { return s.session.empty(); });
  const auto chosen =
      unused != slots_.end() ? unused : std::ranges::min_element(slots_, {}, &Slot::last_used);
  const auto number = static_cast<uint32_t>(chosen - slots_.begin());
  free(number);
  slots_[number].session = session;
  return number;
}

Sipp::Snapshot* Sipp::find_snapshot(const Request& request) {
  Snapshot* best = nullptr;
  for (Snapshot& snapshot : snapshots_) {
    if (snapshot.session != request.session || snapshot.tokens.size() > request.prompt.size() ||
        common_prefix(snapshot.tokens, request.prompt) != snapshot.tokens.size()) {
      continue;
    }
    if (best == nullptr || std::pair(snapshot.tokens.size(), snapshot.last_used) >
                               std::pair(best->tokens.size(), best->last_used)) {
      best = &snapshot;
    }
  }
  if (best != nullptr) {
    ++best->hits;
    best->last_used = now_;
  }
  return best;
}

bool Sipp::restore(const Snapshot& snapshot, SequenceId sequence) {
  clear(sequence);
  bool loaded = false;
  do {
    loaded = load(sequence, Part::state, {0, snapshot.state_tokens}, snapshot.bytes);
  } while (!loaded && give_up_room(sequence));
  return loaded && trim(sequence, static_cast<uint32_t>(snapshot.tokens.size()));
}

BaselinePolicy::Start Sipp::start(const Request& request) {
  ++now_;
  const uint32_t number = admit(request.session);
  Slot& slot = slots_[number];
  const SequenceId sequence{number};
  const auto size = static_cast<uint32_t>(request.prompt.size());
  const bool recurrent = setting_.model == Model::hybrid;
  slot.last_used = now_;
  auto held = static_cast<uint32_t>(slot.mirror.size());
  uint32_t match = common_prefix(slot.mirror, request.prompt);
  if (recurrent && (match < held || held >= size)) match = 0;
  const Snapshot* snapshot = find_snapshot(request);
  if (snapshot != nullptr && snapshot->tokens.size() > match) {
    match = static_cast<uint32_t>(snapshot->tokens.size());
    held = match;
    if (!restore(*snapshot, sequence)) match = 0;
  }
  if (match == size) --match;
  if (match == 0 || (recurrent && match < held)) {
    clear(sequence);
    match = 0;
  } else if (match < held) {
    trim(sequence, match);
  }
  return {.sequence = sequence, .reused = match};
}

void Sipp::store(const Request& request, SequenceId sequence) {
  Snapshot added;
  added.session = request.session;
  added.tokens.assign(request.prompt.begin(), request.prompt.end() - 1);
  added.state_tokens = static_cast<uint32_t>(request.prompt.size() + request.answer.size());
  added.bytes = save(sequence, Part::state, {0, added.state_tokens});
  added.last_used = now_;
  std::erase_if(snapshots_, [&](const Snapshot& snapshot) {
    return snapshot.session == added.session && snapshot.tokens == added.tokens;
  });
  snapshots_.push_back(std::move(added));
  while (snapshots_.size() > kEntries || stored_bytes() > budget_bytes()) {
    snapshots_.erase(std::ranges::min_element(snapshots_, {}, [](const Snapshot& s) {
      return std::tuple(s.tokens.size(), s.hits, s.last_used);
    }));
  }
}

void Sipp::finish(const Request& request, SequenceId sequence) {
  slots_[to_index(sequence)].mirror = request.whole();
  if (engine_.held(sequence).whole) store(request, sequence);
}

bool Sipp::give_up_room(SequenceId working) {
  uint32_t oldest = to_index(working);
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (i == to_index(working) || slots_[i].session.empty()) continue;
    if (oldest == to_index(working) || slots_[i].last_used < slots_[oldest].last_used) oldest = i;
  }
  if (oldest == to_index(working)) return false;
  free(oldest);
  return true;
}

}  // namespace stemma::bench::sequences
