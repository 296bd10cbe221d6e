#include "sequence/session_table.h"

#include <utility>

#include "base/check.h"
#include "base/vectors.h"

namespace stemma::sequence {

bool SessionTable::create(uint32_t capacity) {
  capacity_ = capacity;
  return order_.create(capacity, 1);
}

uint32_t SessionTable::open(std::string_view name) {
  uint32_t session = find(name);
  if (session != kNone) {
    order_.unlink(session);
    order_.push_back(0, session);
    return session;
  }
  if (by_name_.size() >= capacity_) {
    uint32_t oldest = order_.front(0);
    while (oldest != kNone && sessions_[oldest]->in_flight != 0) oldest = order_.after(oldest);
    if (oldest == kNone) return kNone;
    forget(oldest);
  }
  auto made = std::make_unique<Session>();
  made->name = name;
  if (free_.empty()) {
    base::make_room(sessions_, 1);
    base::make_room(free_, sessions_.size() + 1);
    session = static_cast<uint32_t>(sessions_.size());
  } else {
    session = free_.back();
  }
  if (!order_.ensure(session)) throw std::bad_alloc();
  by_name_.emplace(made->name, session);
  if (free_.empty()) {
    sessions_.push_back(std::move(made));
  } else {
    free_.pop_back();
    sessions_[session] = std::move(made);
  }
  sessions_[session]->id = SessionId{++lives_};
  order_.push_back(0, session);
  return session;
}

void SessionTable::forget(uint32_t session) noexcept {
  STEMMA_CHECK(sessions_[session]->in_flight == 0);
  order_.unlink(session);
  by_name_.erase(sessions_[session]->name);
  sessions_[session].reset();
  free_.push_back(session);
}

uint64_t SessionTable::bytes() const noexcept {
  return by_name_.size() * (sizeof(Session) + 96) + sessions_.capacity() * sizeof(void*);
}

void SessionTable::check_invariants() const {
  uint32_t linked = 0;
  for (uint32_t s = order_.front(0); s != kNone; s = order_.after(s)) {
    ++linked;
    STEMMA_CHECK(sessions_[s] != nullptr && find(sessions_[s]->name) == s);
  }
  STEMMA_CHECK(linked == by_name_.size() && linked + free_.size() == sessions_.size());
}

}  // namespace stemma::sequence
