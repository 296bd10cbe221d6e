#include "cache/books/event_log.h"

#include <algorithm>
#include <new>

#include "base/vectors.h"

namespace stemma::cache {

Event& EventLog::begin(EventKind kind, GroupIndex group) noexcept {
  Event& event = ring_[next_ % ring_.size()];
  event.sequence = next_++;
  event.kind = kind;
  event.tail = false;
  event.group = group;
  event.parent = {};
  event.keys.clear();
  event.words.clear();
  event.block_tokens = 0;
  open_[group] = next_;
  return event;
}

Event* EventLog::growing(EventKind kind, GroupIndex group) noexcept {
  // Events must be told in the order they happened.
  if (sealed_ != next_ && ring_[(next_ - 1) % ring_.size()].kind != kind) seal();
  const uint64_t end = open_[group];
  if (end <= sealed_ || end + ring_.size() <= next_) return nullptr;
  return &ring_[(end - 1) % ring_.size()];
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
    if (!event.keys.empty()) begin(event.kind, event.group);
    seal();
  }
}

void EventLog::stored(const ContentKey& parent, const ContentKey& key,
                      std::span<const uint32_t> words, uint32_t block_tokens, GroupIndex group,
                      bool tail) noexcept {
  if (!on()) return;
  Event* event = growing(EventKind::stored, group);
  const bool follows =
      event != nullptr && event->tail == tail && (words.empty() || event->keys.back() == parent);
  if (!follows) {
    event = &begin(EventKind::stored, group);
    event->parent = parent;
    event->block_tokens = block_tokens;
    event->tail = tail;
  }
  append(*event, key, words);
}

void EventLog::removed(const ContentKey& key, GroupIndex group) noexcept {
  if (!on()) return;
  Event* event = growing(EventKind::removed, group);
  append(event != nullptr ? *event : begin(EventKind::removed, group), key, {});
}

void EventLog::cleared() noexcept {
  if (!on()) return;
  begin(EventKind::cleared, 0);
  seal();
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
