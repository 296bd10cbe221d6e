#include "sequence/session_table.h"

#include <new>
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
  } else if (by_name_.size() < capacity_) {
    session = add(name);
  } else {
    session = replace_oldest(name);
    if (session == kNone) return kNone;
  }
  order_.push_back(0, session);
  return session;
}

// Adds the session to the table, but to no list yet.
uint32_t SessionTable::add(std::string_view name) {
  auto made = std::make_unique<Session>();
  made->name = name;
  made->id = SessionId{lives_ + 1};
  const uint32_t session = free_.empty() ? static_cast<uint32_t>(sessions_.size()) : free_.back();
  if (free_.empty()) {
    base::make_room(sessions_, 1);
    base::make_room(free_, sessions_.size() + 1);
  }
  if (!order_.ensure(session)) throw std::bad_alloc();
  by_name_.emplace(made->name, session);
  // Nothing fails from here on.
  ++lives_;
  name_bytes_ += name.size();
  if (free_.empty()) {
    sessions_.push_back(std::move(made));
  } else {
    free_.pop_back();
    sessions_[session] = std::move(made);
  }
  return session;
}

// The new session takes over everything of the old one except the name.
uint32_t SessionTable::replace_oldest(std::string_view name) {
  uint32_t oldest = order_.front(0);
  while (oldest != kNone && sessions_[oldest]->in_flight != 0) oldest = order_.after(oldest);
  if (oldest == kNone) return kNone;
  std::string made(name);
  // Nothing fails from here on: there are as many entries as before.
  Session& session = *sessions_[oldest];
  auto entry = by_name_.extract(session.name);
  order_.unlink(oldest);
  name_bytes_ += name.size() - session.name.size();
  session = Session();
  session.name = std::move(made);
  session.id = SessionId{++lives_};
  entry.key() = session.name;
  by_name_.insert(std::move(entry));
  return oldest;
}

void SessionTable::forget(uint32_t session) noexcept {
  STEMMA_CHECK(sessions_[session]->in_flight == 0);
  order_.unlink(session);
  by_name_.erase(sessions_[session]->name);
  name_bytes_ -= sessions_[session]->name.size();
  sessions_[session].reset();
  free_.push_back(session);
}

uint64_t SessionTable::bytes() const noexcept {
  return by_name_.size() * (sizeof(Session) + 96) + name_bytes_ +
         sessions_.capacity() * sizeof(void*);
}

void SessionTable::check_invariants() const {
  uint32_t linked = 0;
  uint64_t bytes = 0;
  for (uint32_t s = order_.front(0); s != kNone; s = order_.after(s)) {
    ++linked;
    bytes += sessions_[s]->name.size();
    STEMMA_CHECK(sessions_[s] != nullptr && find(sessions_[s]->name) == s);
  }
  STEMMA_CHECK(bytes == name_bytes_ && linked <= capacity_);
  STEMMA_CHECK(linked == by_name_.size() && linked + free_.size() == sessions_.size());
}

}  // namespace stemma::sequence
