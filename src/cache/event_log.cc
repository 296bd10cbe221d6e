#include "cache/event_log.h"

#include <algorithm>

namespace stemma::cache {

Event& EventLog::begin(EventKind kind) {
  Event& event = ring_[next_ % ring_.size()];
  event.sequence = next_++;
  event.kind = kind;
  event.parent = {};
  event.keys.clear();
  event.words.clear();
  event.block_tokens = 0;
  open_ = true;
  return event;
}

void EventLog::stored(const ContentKey& parent, const ContentKey& key,
                      std::span<const uint32_t> words, uint32_t block_tokens) {
  if (!on()) return;
  const bool follows =
      open_ && newest().kind == EventKind::stored && newest().keys.back() == parent;
  Event& event = follows ? newest() : begin(EventKind::stored);
  if (!follows) {
    event.parent = parent;
    event.block_tokens = block_tokens;
  }
  const uint64_t before = bytes_of(event);
  event.keys.push_back(key);
  event.words.insert(event.words.end(), words.begin(), words.end());
  contents_bytes_ += bytes_of(event) - before;
}

void EventLog::removed(const ContentKey& key) {
  if (!on()) return;
  Event& event =
      open_ && newest().kind == EventKind::removed ? newest() : begin(EventKind::removed);
  const uint64_t before = bytes_of(event);
  event.keys.push_back(key);
  contents_bytes_ += bytes_of(event) - before;
}

void EventLog::cleared() {
  if (!on()) return;
  begin(EventKind::cleared);
  open_ = false;
}

uint64_t EventLog::copy(uint64_t from, uint32_t limit, std::vector<Event>& out) const {
  if (!on()) return from;
  const uint64_t oldest = next_ > ring_.size() ? next_ - ring_.size() : 0;
  uint64_t sequence = std::clamp(from, oldest, next_);
  for (; sequence < next_ && limit != 0; ++sequence, --limit) {
    out.push_back(ring_[sequence % ring_.size()]);
  }
  return sequence;
}

}  // namespace stemma::cache
