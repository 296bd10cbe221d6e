#include "tier/redis/unsettled_puts.h"

#include <algorithm>
#include <new>

#include "tier/wait_until.h"

namespace stemma::tier::redis {

void UnsettledPuts::set_adrift(const EntryKey& key) noexcept {
  const base::Lock lock(mutex_);
  try {
    ++adrift_[key];
  } catch (const std::bad_alloc&) {
    ++adrift_unnamed_;
  }
}

void UnsettledPuts::settle(const EntryKey& key) noexcept {
  const base::Lock lock(mutex_);
  if (const auto at = adrift_.find(key); at != adrift_.end()) {
    if (--at->second == 0) adrift_.erase(at);
  } else if (adrift_unnamed_ != 0) {
    --adrift_unnamed_;
  }
  changed_.notify_all();
}

void UnsettledPuts::lose(const EntryKey& key, bool adrift, uint64_t now_ns) noexcept {
  {
    const base::Lock lock(mutex_);
    while (!lost_.empty() && deadline_after(lost_.front().first, settle_ns_) <= now_ns) {
      lost_.pop_front();
    }
    try {
      if (lost_.size() >= kMostLost) {
        lost_unnamed_ns_ = now_ns;
      } else {
        lost_.emplace_back(now_ns, key);
      }
    } catch (const std::bad_alloc&) {
      lost_unnamed_ns_ = now_ns;
    }
  }
  if (adrift) settle(key);
}

bool UnsettledPuts::is_adrift(const Purge& what) const {
  return adrift_unnamed_ != 0 || std::any_of(adrift_.begin(), adrift_.end(), [&](const auto& one) {
           return what.names(one.first);
         });
}

uint64_t UnsettledPuts::settled_at(const Purge& what) const noexcept {
  uint64_t lost_ns = lost_unnamed_ns_;
  for (const auto& [when_ns, key] : lost_) {
    if (what.names(key)) lost_ns = std::max(lost_ns, when_ns);
  }
  return lost_ns == 0 ? 0 : deadline_after(lost_ns, settle_ns_);
}

std::string UnsettledPuts::wait(const Purge& what, uint64_t until_ns) {
  base::Lock lock(mutex_);
  if (!tier::wait_until(changed_, lock, until_ns,
                        [&]() STEMMA_REQUIRES(mutex_) { return !is_adrift(what); })) {
    return "a put that was cut off by its deadline has no answer yet";
  }
  for (uint64_t at = settled_at(what); monotonic_ns() < at; at = settled_at(what)) {
    if (monotonic_ns() >= until_ns) {
      return "the server may still carry out a put whose connection broke a moment ago";
    }
    tier::wait_until(changed_, lock, std::min(at, until_ns), [] { return false; });
  }
  return is_adrift(what) ? "a put that was cut off by its deadline has no answer yet" : "";
}

}  // namespace stemma::tier::redis
