// SessionDates: the date that templates print, one for each session.
//
// A template that prints the date would change the beginning of every prompt at midnight, and
// nothing of a long conversation could be reused. So a session keeps the date of its first request.
// A request without a session gets the current date.
//
// Threading:  thread-safe.
// Cost:       O(log sessions). Remembers at most kMostSessions; the least recently used is dropped.
#pragma once

#include <cstdint>
#include <ctime>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/lock.h"

namespace stemma::server {

class SessionDates {
 public:
  static constexpr size_t kMostSessions = 4096;

  // Returns local time, or nothing if the system does not know it. A new session gets `now`.
  std::optional<std::tm> date(std::string_view salt, std::string_view session, std::time_t now);

 private:
  using Key = std::pair<std::string, std::string>;
  struct Kept {
    std::time_t since;
    std::list<const Key*>::iterator order;
  };
  base::WaitMutex mutex_;
  std::map<Key, Kept> sessions_ STEMMA_GUARDED_BY(mutex_);
  std::list<const Key*> order_ STEMMA_GUARDED_BY(mutex_);  // Used longest ago first.
};

}  // namespace stemma::server
