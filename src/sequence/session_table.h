// SessionTable: conversations by name. A session's record outlives its sequence.
//
// Threading:  one thread at a time.
// Cost:       every call O(1) expected, whatever the number of sessions. A call that forgets one
//             skips sessions under way that were used less recently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/index_lists.h"
#include "stemma/ids.h"
#include "stemma/sequence_engine.h"

namespace stemma::sequence {

struct Session {
  std::string name;
  SessionId id = kNoSession;  // One for each life of a name.
  uint32_t in_flight = 0;     // Turns under way.
  bool over = false;          // It ends when its turns end.
  // Where its last turn is, or was. If the generation is still the same, it is still there.
  SequenceId sequence{};
  uint64_t generation = ~uint64_t{0};
  uint64_t turns = 0;
  uint32_t length = 0;
  uint64_t last_used_ns = 0;
};

class SessionTable {
 public:
  static constexpr uint32_t kNone = base::IndexLists::kNone;

  // False when there is no memory.
  [[nodiscard]] bool create(uint32_t capacity);

  uint32_t find(std::string_view name) const noexcept {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? kNone : it->second;
  }
  // Finds or adds the session of that name, and makes it the most recently used. If the table is
  // full, forgets the one unused longest; returns kNone if all are under way. Throws
  // std::bad_alloc; nothing has changed then.
  uint32_t open(std::string_view name);
  // Requires: it is not under way.
  void forget(uint32_t session) noexcept;
  Session& operator[](uint32_t session) noexcept { return *sessions_[session]; }
  const Session& operator[](uint32_t session) const noexcept { return *sessions_[session]; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(by_name_.size()); }
  uint64_t bytes() const noexcept;  // Approximate.
  void check_invariants() const;

 private:
  uint32_t add(std::string_view name);
  uint32_t replace_oldest(std::string_view name);

  uint32_t capacity_ = 0;
  uint64_t lives_ = 0;
  uint64_t name_bytes_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<uint32_t> free_;
  base::IndexLists order_;                                  // One list, least recently used first.
  std::unordered_map<std::string_view, uint32_t> by_name_;  // Keys are the sessions' own names.
};

}  // namespace stemma::sequence
