// The numbered stream of stored and removed blocks, kept in a ring for slow observers.
//
// If there is no memory to record an event, its number is skipped: observers see a gap, as after an
// overflow.
//
// Threading:  one thread at a time.
// Cost:       events keep their vectors, so a warm ring allocates only when events grow.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "stemma/events.h"

namespace stemma::cache {

class EventLog {
 public:
  explicit EventLog(uint32_t capacity) : ring_(capacity) {}
  bool on() const noexcept { return !ring_.empty() && !muted_; }
  void mute(bool muted) noexcept { muted_ = muted; }

  // Each group has one event that grows: a stored event while each block follows the one before (a
  // block without words may follow any), or a removed event. A change of kind ends all of them.
  void stored(const ContentKey& parent, const ContentKey& key, std::span<const uint32_t> words,
              uint32_t block_tokens, GroupIndex group = 0, bool tail = false) noexcept;
  void removed(const ContentKey& key, GroupIndex group = 0) noexcept;
  void cleared() noexcept;
  // Ends the growing events: the next block starts a new one. Must be called before anyone copies
  // events.
  void seal() noexcept { sealed_ = next_; }

  uint64_t next_sequence() const noexcept { return next_; }
  // Copies fewer events if memory runs out.
  uint64_t copy(uint64_t from, uint32_t limit, std::vector<Event>& out) const noexcept;
  uint64_t bytes() const noexcept { return ring_.capacity() * sizeof(Event) + contents_bytes_; }

 private:
  Event& begin(EventKind kind, GroupIndex group) noexcept;
  // The growing event of a group, or null.
  Event* growing(EventKind kind, GroupIndex group) noexcept;
  void append(Event& event, const ContentKey& key, std::span<const uint32_t> words) noexcept;
  static uint64_t bytes_of(const Event& event) noexcept {
    return event.keys.capacity() * sizeof(ContentKey) + event.words.capacity() * sizeof(uint32_t);
  }

  std::vector<Event> ring_;
  uint64_t next_ = 0;
  uint64_t contents_bytes_ = 0;
  uint64_t sealed_ = 0;                          // Events with lower numbers no longer grow.
  std::array<uint64_t, kMaxGroups + 1> open_{};  // By group: the growing event's number, plus one.
  bool muted_ = false;
};

}  // namespace stemma::cache
