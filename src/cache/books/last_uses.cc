#include "cache/books/last_uses.h"

#include <new>

namespace stemma::cache {

void LastUses::used(SessionId session, CellIndex cell) {
  if (session == kNoSession) {
    if (!last_.empty()) last_.erase(cell);
    return;
  }
  try {
    last_[cell] = session;
    sessions_[session] = {cell, tree_.birth(cell)};
  } catch (const std::bad_alloc&) {
    // This is only a hint, and an old one would be wrong, so forget the session.
    last_.erase(cell);
    sessions_.erase(session);
    return;
  }
  if (sessions_.size() <= most_) return;
  // Forget sessions whose last use is gone or now belongs to another: at most as many stay as there
  // are cells, so this happens rarely.
  std::erase_if(sessions_, [&](const auto& entry) {
    if (!is_current(entry.second)) return true;
    const auto last = last_.find(entry.second.cell);
    return last == last_.end() || last->second != entry.first;
  });
}

CellIndex LastUses::end(SessionId session) noexcept {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return kNoCell;
  const Use use = it->second;
  sessions_.erase(it);
  const auto last = last_.find(use.cell);
  if (last == last_.end() || last->second != session) return kNoCell;
  last_.erase(last);
  return is_current(use) ? use.cell : kNoCell;
}

}  // namespace stemma::cache
