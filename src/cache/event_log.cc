#include "cache/event_log.h"

#include <algorithm>
#include <new>

#include "base/vectors.h"

namespace stemma::cache {

Event& EventLog::begin(EventKind kind) noexcept {
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

void EventLog::append(Event& event, const ContentKey& key,
                      std::span<const uint32_t> words) noexcept {
  const uint64_t before = bytes_of(event);
  try {
    base::make_room(event.keys, 1);
    base::make_room(event.words, words.size());
    event.keys.push_back(key);
    event.words.insert(event.words.end(), words.begin(), words.end());
    contents_bytes_ += bytes_of(event) - before;
  } catch (const std::bad_alloc&) {
    contents_bytes_ += bytes_of(event) - before;
    // The gap: an event without keys, which is never copied.
    if (!event.keys.empty()) begin(event.kind);
    open_ = false;
  }
}

void EventLog::stored(const ContentKey& parent, const ContentKey& key,
                      std::span<const uint32_t> words, uint32_t block_tokens) noexcept {
  if (!on()) return;
  const bool follows =
      open_ && newest().kind == EventKind::stored && newest().keys.back() == parent;
  Event& event = follows ? newest() : begin(EventKind::stored);
  if (!follows) {
    event.parent = parent;
    event.block_tokens = block_tokens;
  }
  append(event, key, words);
}

void EventLog::removed(const ContentKey& key) noexcept {
  if (!on()) return;
  Event& event =
      open_ && newest().kind == EventKind::removed ? newest() : begin(EventKind::removed);
  append(event, key, {});
}

void EventLog::cleared() noexcept {
  if (!on()) return;
  begin(EventKind::cleared);
  open_ = false;
}

uint64_t EventLog::copy(uint64_t from, uint32_t limit, std::vector<Event>& out) const noexcept {
  if (!on()) return from;
  const uint64_t oldest = next_ > ring_.size() ? next_ - ring_.size() : 0;
  uint64_t sequence = std::clamp(from, oldest, next_);
  try {
    for (; sequence < next_ && limit != 0; ++sequence) {
      const Event& event = ring_[sequence % ring_.size()];
      if (event.keys.empty() && event.kind != EventKind::cleared) continue;  // Lost.
      out.push_back(event);
      --limit;
    }
  } catch (const std::bad_alloc&) {
  }
  return sequence;
}

}  // namespace stemma::cache
