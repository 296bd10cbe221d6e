// How a stack forgets: first nothing more goes to any level, then each level removes what it has.
#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "tier/layered_stack.h"

namespace stemma::tier {

bool LayeredStack::may_promote(const EntryKey& key, uint64_t purges) const noexcept {
  const auto names = [&](const Purge& what) { return what.names(key); };
  return purges == purges_ && std::none_of(purging_.begin(), purging_.end(), names);
}

std::vector<LevelPurged> LayeredStack::purge(const Purge& what, uint64_t until_ns) {
  std::vector<LevelPurged> purged(levels_.size());
  std::vector<std::thread> threads;
  threads.reserve(levels_.size());
  {
    const std::lock_guard lock(mutex_);
    purging_.push_back(what);
    ++purges_;
    std::erase_if(ahead_, [&](const Wanted& one) { return what.names(one.key); });
  }
  for (size_t l = 0; l < levels_.size(); ++l) {
    const auto work = [&, l] {
      try {
        purged[l] = purge_level(l, what, until_ns);
      } catch (const std::bad_alloc&) {
        purged[l].purged.complete =
            false;  // Short of memory; its name and a reason would need some.
      }
    };
    try {
      threads.emplace_back(work);
    } catch (const std::exception&) {
      work();  // There is no thread for it: one after the other, then.
    }
  }
  for (std::thread& thread : threads) thread.join();
  const std::lock_guard lock(mutex_);
  purging_.erase(std::find(purging_.begin(), purging_.end(), what));
  ++purges_;
  // They name entries that are gone; what is still there will be noticed when it is seen again.
  sightings_.forget_all();
  return purged;
}

LevelPurged LayeredStack::purge_level(size_t level, const Purge& what, uint64_t until_ns) {
  Level& one = *levels_[level];
  LevelPurged purged{.name = one.tier->traits().name, .purged = {}};
  const bool in_time = one.writer->forget(what, until_ns);
  purged.purged = one.tier->purge(what, until_ns);
  if (in_time || !purged.purged.complete) return purged;
  purged.purged.complete = false;
  purged.purged.error = "an entry was still on its way to it";
  return purged;
}

}  // namespace stemma::tier
