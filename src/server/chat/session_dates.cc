#include "server/chat/session_dates.h"

namespace stemma::server {

std::optional<std::tm> SessionDates::date(std::string_view salt, std::string_view session,
                                          std::time_t now) {
  if (!session.empty()) {
    const base::Lock lock(mutex_);
    const auto [at, fresh] =
        sessions_.try_emplace({std::string(salt), std::string(session)}, Kept{now, order_.end()});
    if (fresh) {
      at->second.order = order_.insert(order_.end(), &at->first);
    } else {
      order_.splice(order_.end(), order_, at->second.order);
      now = at->second.since;
    }
    if (sessions_.size() > kMostSessions) {
      const Key* const oldest = order_.front();
      order_.pop_front();
      sessions_.erase(sessions_.find(*oldest));
    }
  }
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return {};
  return local;
}

}  // namespace stemma::server
