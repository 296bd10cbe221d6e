// How blocks are forgotten: nothing that is in transfer comes back afterwards.
#include <algorithm>

#include "tier/block_tiers.h"
#include "tier/wait_until.h"

namespace stemma::tier {

BlockTiers::Passage::Passage(BlockTiers& tiers) : tiers_(tiers) {
  const base::Lock lock(tiers_.mutex_);
  place_ = tiers_.passages_.insert(++tiers_.numbers_).first;
}

BlockTiers::Passage::~Passage() {
  const base::Lock lock(tiers_.mutex_);
  tiers_.passages_.erase(place_);
  tiers_.passed_.notify_all();
}

bool BlockTiers::is_forgetting(uint64_t owner) const {
  const base::Lock lock(mutex_);
  return std::any_of(forgetting_.begin(), forgetting_.end(),
                     [&](const Purge& what) { return !what.owner || *what.owner == owner; });
}

// Blocks do not name the prefix that they continue, so everything deeper goes.
Purge BlockTiers::what_follows(const Scope& scope, const Prompt& prefix) {
  return {.owner = owner_of(scope), .keep = static_cast<uint32_t>(prefix.tokens.size())};
}

std::vector<LevelPurged> BlockTiers::forget(const Purge& what, uint64_t until_ns,
                                            const std::function<void()>& drop_here) {
  bool in_time = false;
  {
    base::Lock lock(mutex_);
    forgetting_.push_back(what);
    ++forgets_;
    const uint64_t mine = ++numbers_;
    in_time = wait_until(passed_, lock, until_ns, [&]() STEMMA_REQUIRES(mutex_) {
      return passages_.empty() || *passages_.begin() > mine;
    });
  }
  if (drop_here) drop_here();
  std::vector<LevelPurged> purged = stack_.purge(what, until_ns);
  const base::Lock lock(mutex_);
  forgetting_.erase(std::ranges::find(forgetting_, what));
  for (LevelPurged& level : purged) {
    if (in_time || !level.purged.complete) continue;
    level.purged.complete = false;
    level.purged.error = "blocks were still on their way to the tiers";
  }
  return purged;
}

}  // namespace stemma::tier
