// How a stack forgets: first no entry goes to any level any more, then each level removes its own.
#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "tier/layered_stack.h"

namespace stemma::tier {

bool LayeredStack::may_promote(const EntryKey& key, uint64_t purges) const noexcept {
  const auto names = [&](const Purge& what) { return what.names(key); };
  const auto takes = [&](const std::unordered_set<EntryKey>* keys) { return keys->contains(key); };
  return purges == purges_ && std::none_of(removing_.begin(), removing_.end(), takes) &&
         std::none_of(purging_.begin(), purging_.end(), names);
}

// While a Removal lives, these entries are not put anywhere after a load.
class LayeredStack::Removal {
 public:
  Removal(LayeredStack& stack, const std::unordered_set<EntryKey>& keys)
      : stack_(stack), keys_(keys) {
    const base::Lock lock(stack_.mutex_);
    stack_.removing_.push_back(&keys_);
    ++stack_.purges_;
    std::erase_if(stack_.ahead_, [&](const Wanted& one) { return keys_.contains(one.key); });
  }
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  ~Removal() {
    const base::Lock lock(stack_.mutex_);
    for (const EntryKey& key : keys_) {
      // Later requests for the key do not join a load that began before.
      stack_.flights_.erase(key);
      stack_.sightings_.clear_stored(key, ~LevelMask{0});
    }
    std::erase(stack_.removing_, &keys_);
    ++stack_.purges_;
  }

 private:
  LayeredStack& stack_;
  const std::unordered_set<EntryKey>& keys_;
};

std::vector<TierOutcome> LayeredStack::remove(std::span<const EntryKey> keys, uint64_t until_ns) {
  std::vector<TierOutcome> outcomes(keys.size(), TierOutcome::absent);
  const std::unordered_set<EntryKey> going(keys.begin(), keys.end());
  std::vector<std::shared_ptr<TierBatch>> batches(levels_.size());
  std::vector<bool> in_time(levels_.size(), false);
  const Removal removal(*this, going);
  for (size_t l = 0; l < levels_.size(); ++l) {
    in_time[l] = levels_[l]->writer->forget(going, until_ns);
    auto made = TierBatch::make(TierOp::remove, keys.size());
    if (!made) continue;
    for (size_t i = 0; i < keys.size(); ++i) (*made)->items()[i].key = keys[i];
    (*made)->deadline_ns = until_ns;
    levels_[l]->tier->submit(*made);
    batches[l] = *std::move(made);
  }
  for (size_t l = 0; l < levels_.size(); ++l) {
    const bool over = batches[l] != nullptr && batches[l]->wait(until_ns);
    if (!over && batches[l] != nullptr) batches[l]->cancel();
    for (size_t i = 0; i < keys.size(); ++i) {
      TierOutcome outcome = TierOutcome::late;
      if (over && in_time[l]) outcome = batches[l]->items()[i].outcome;
      // A failure at any level decides the outcome; otherwise, whether any level had the entry.
      if (outcome == TierOutcome::absent) continue;
      if (outcome != TierOutcome::done || outcomes[i] == TierOutcome::absent) outcomes[i] = outcome;
    }
  }
  return outcomes;
}

std::vector<LevelPurged> LayeredStack::purge(const Purge& what, uint64_t until_ns) {
  std::vector<LevelPurged> purged(levels_.size());
  std::vector<std::thread> threads;
  threads.reserve(levels_.size());
  {
    const base::Lock lock(mutex_);
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
      work();  // There is no thread for it: purge the levels one after the other.
    }
  }
  for (std::thread& thread : threads) thread.join();
  const base::Lock lock(mutex_);
  purging_.erase(std::find(purging_.begin(), purging_.end(), what));
  ++purges_;
  // The sightings name removed entries; entries that still exist are noticed when seen again.
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
