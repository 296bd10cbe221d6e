// From the tiers into a cache. block_tiers_store.cc has the other direction.
#include "tier/block_tiers.h"

#include <algorithm>
#include <new>

#include "tier/transfers.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// If a depth's entries turn out damaged, a shallower depth is tried, up to this many rounds.
constexpr uint32_t kRounds = 8;

}  // namespace

Result<void> BlockTiers::check(const BlockTiersOptions& options) {
  return BlockGrid::check(options.groups);
}

BlockTiers::BlockTiers(const BlockTiersOptions& options, TierStack& stack)
    : options_(options), grid_(options.groups, options.layout), stack_(stack) {
  for (size_t l = 0; l < stack.levels(); ++l) {
    writes_back_ = writes_back_ || stack.write_policy(l) == WritePolicy::write_back;
  }
}

uint32_t BlockTiers::last_depth(std::span<const key::MediaSpan> units, uint32_t length,
                                const LookupOptions& lookup) const {
  // The last positions are computed anyway. If part of a block can be copied, the block that ends
  // with the prompt still helps; but a state or a window serves its own depth only, not one a
  // little before it.
  const uint32_t usable = key::leave_units(units, length, std::max(lookup.evaluate_at_least, 1U));
  const uint32_t useful = grid_.nested && lookup.allow_copy ? length : usable;
  return std::min(useful, lookup.at_most) / grid_.unit_tokens * grid_.unit_tokens;
}

std::shared_ptr<BlockTiers::Restoring> BlockTiers::begin_restore(const EntryKey& key) {
  auto made = std::make_shared<Restoring>();
  const base::Lock lock(mutex_);
  const auto [at, mine] = restoring_.try_emplace(key, std::move(made));
  return mine ? nullptr : at->second;
}

void BlockTiers::end_restore(const EntryKey& key) noexcept {
  std::shared_ptr<Restoring> other;
  {
    const base::Lock lock(mutex_);
    const auto at = restoring_.find(key);
    other = std::move(at->second);
    restoring_.erase(at);
  }
  const base::Lock lock(other->mutex);
  other->over = true;
  other->ended.notify_all();
}

Result<RestoredBlocks> BlockTiers::restore(CachePort& cache, const Scope& scope,
                                           const Prompt& prompt, const LeaseOptions& options) try {
  RestoredBlocks restored;
  uint64_t forgets = 0;
  {
    const base::Lock lock(mutex_);
    forgets = forgets_;
  }
  const uint64_t until_ns = deadline_after(monotonic_ns(), stack_.load_ns());
  for (;;) {
    LookupOptions lookup = options.lookup;
    lookup.want_logits = false;
    STEMMA_TRY(const Report report, cache.lookup(scope, prompt, lookup));
    if (!restored.shared) {
      restored.cached_tokens = report.reused_tokens;
      if (writes_back_) make_room_for(cache, scope, prompt, options, report.reused_tokens);
    }
    const bool wanted = options.lookup.read && options.lookup.write;
    if (!wanted || report.outcome == Outcome::full_hit) return restored;
    STEMMA_TRY(PromptKeys keys, PromptKeys::of(scope, prompt));
    const uint32_t last =
        last_depth(keys.units(), static_cast<uint32_t>(prompt.tokens.size()), options.lookup);
    if (last <= report.reused_tokens) return restored;
    const RestorePlan plan(grid_, keys, report, last);
    if (plan.wanted().empty()) return restored;
    const EntryKey key = plan.wanted()[0].key;
    const std::shared_ptr<Restoring> other = begin_restore(key);
    if (other == nullptr) {
      const auto end = [this, &key](void*) { end_restore(key); };
      const std::unique_ptr<void, decltype(end)> ended(this, end);
      Job job{cache, scope, prompt, options, plan, forgets, report.reused_tokens};
      STEMMA_TRY_VOID(bring_in(job, restored));
      return restored;
    }
    // Then look again: either the cache has more now, or nothing came and it is our turn.
    restored.shared = true;
    base::Lock lock(other->mutex);
    if (!wait_until(other->ended, lock, until_ns,
                    [&]() STEMMA_REQUIRES(other->mutex) { return other->over; }))
      return restored;
  }
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to restore blocks");
}

// Makes room for the prompt while evictions can still be saved; keeps what the prompt will reuse.
void BlockTiers::make_room_for(CachePort& cache, const Scope& scope, const Prompt& prompt,
                               const LeaseOptions& options, uint32_t reused) {
  const auto length = static_cast<uint32_t>(prompt.tokens.size());
  for (const GroupOptions& group : grid_.groups) {
    if (group.attention != Attention::full || group.capacity_blocks == 0) continue;
    // No lease gets that many blocks, whatever is evicted.
    if (length > uint64_t{group.capacity_blocks} * group.block_tokens) return;
  }
  LeaseOptions holding = options;
  holding.lookup.want_logits = false;
  const uint32_t whole = reused / grid_.unit_tokens * grid_.unit_tokens;
  const bool states =
      std::any_of(grid_.reaches.begin(), grid_.reaches.end(),
                  [](const auto& reach) { return reach.kind == tree::Reach::recurrent; });
  // Only a lease like a request's holds a state inside a block and the part-block that ends there;
  // without them there may be nothing to continue from. Without states it is only a part-block,
  // which may be evicted.
  const bool inside = states && whole != reused;
  holding.fill_to = inside ? 0 : whole;
  if (inside) {
    holding.lookup.write = false;
    holding.draft_tokens = 0;
  }
  std::unique_ptr<LeasePort> hold;
  if (inside || whole != 0) {
    if (Result<std::unique_ptr<LeasePort>> held = cache.lease(scope, prompt, holding)) {
      hold = *std::move(held);
    }
  }
  // A lease that fills holds no state: it has yet to write its own.
  for (GroupIndex g = 0; hold != nullptr && !inside && g < grid_.groups.size(); ++g) {
    if (grid_.reaches[g].kind != tree::Reach::recurrent) continue;
    static_cast<void>(hold->hold_checkpoint(g, whole));
  }
  // What cannot be saved is simply lost.
  static_cast<void>(make_room(cache, length - whole));
}

Result<void> BlockTiers::bring_in(Job& job, RestoredBlocks& restored) {
  job.there = stack_.where(job.plan.wanted());
  job.loaded.resize(job.there.size());
  const uint32_t stored = job.plan.deepest(job.there);
  if (stored <= job.reused) return {};
  restored.stored_tokens = stored - job.reused / grid_.unit_tokens * grid_.unit_tokens;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Choice choice = choose(job);
    if (choice.depth == 0) return {};
    if (!load(job, missing(job, choice.depth), choice.patience_ns)) continue;
    STEMMA_TRY(const bool settled, put_in(job, choice.depth, restored));
    if (settled) return {};
  }
  return {};
}

std::vector<uint32_t> BlockTiers::missing(const Job& job, uint32_t depth) {
  std::vector<uint32_t> needed = job.plan.needed(depth);
  std::erase_if(needed, [&](uint32_t i) { return job.loaded[i].payload != nullptr; });
  return needed;
}

BlockTiers::Choice BlockTiers::choose(const Job& job) {
  uint32_t refused = 0;
  // Tries the deepest depth first; if some of its entries lie in a level that is too slow, the
  // deepest depth that the levels before it can serve.
  for (size_t top = stack_.levels(); top > 0; --top) {
    const LevelMask near = (LevelMask{1} << top) - 1;
    std::vector<LevelMask> there = job.there;
    for (size_t i = 0; i < there.size(); ++i) {
      if (job.loaded[i].payload == nullptr) there[i] &= near;
    }
    const uint32_t depth = job.plan.deepest(there);
    if (depth <= job.reused) break;
    if (depth == refused) continue;
    const std::vector<uint32_t> needed = missing(job, depth);
    if (needed.empty()) return {depth, kNever};
    std::vector<Wanted> wanted;
    std::vector<LevelMask> levels;
    for (const uint32_t i : needed) {
      wanted.push_back(job.plan.wanted()[i]);
      levels.push_back(there[i]);
      if (!grid_.nested) wanted.back().tokens = 0;
    }
    // If entries are useful only all together, the last one is credited with all the tokens.
    if (!grid_.nested) wanted.back().tokens = depth - job.reused;
    const LoadChoice choice = stack_.choose(wanted, levels);
    const uint64_t patience = choice.saved_ns > 0 ? static_cast<uint64_t>(choice.saved_ns) : kNever;
    if (choice.count == needed.size()) return {depth, patience};
    if (grid_.nested) {
      for (size_t i = choice.count; i < needed.size(); ++i) there[needed[i]] = 0;
      const uint32_t worth = job.plan.deepest(there);
      return {worth > job.reused ? worth : 0, patience};
    }
    refused = depth;
  }
  return {};
}

bool BlockTiers::load(Job& job, std::span<const uint32_t> indices, uint64_t patience_ns) {
  std::vector<Wanted> wanted;
  std::vector<LevelMask> levels;
  for (const uint32_t i : indices) {
    wanted.push_back(job.plan.wanted()[i]);
    levels.push_back(job.there[i]);
  }
  std::vector<Loaded> loaded = stack_.load(wanted, levels, patience_ns);
  bool all = true;
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i].payload == nullptr) {
      job.there[indices[i]] = 0;
      all = false;
    }
    job.loaded[indices[i]] = std::move(loaded[i]);
  }
  return all;
}

Result<bool> BlockTiers::put_in(Job& job, uint32_t depth, RestoredBlocks& restored) {
  LeaseOptions own = job.options;
  own.lookup.want_logits = false;
  own.fill_to = depth;
  Result<std::unique_ptr<LeasePort>> leased = job.cache.lease(job.scope, job.prompt, own);
  // No room: the engine computes it.
  if (!leased) {
    return leased.error().code() == Errc::invalid_argument ? Result<bool>(leased.error()) : true;
  }
  LeasePort& lease = **leased;
  std::vector<std::vector<BlockId>> drafts(grid_.groups.size());
  for (GroupIndex g = 0; g < drafts.size(); ++g) {
    if (grid_.reaches[g].kind != tree::Reach::recurrent) {
      drafts[g] = lease.drafts(g);
      continue;
    }
    const Result<BlockId> slot = lease.draft_checkpoint(g);
    if (!slot) return true;
    drafts[g].assign(depth / grid_.unit_tokens, kNoBlock);
    drafts[g].back() = *slot;
  }
  std::vector<Write> writes;
  const std::vector<uint32_t> needed = job.plan.needed(depth);
  for (const uint32_t i : needed) {
    const RestorePlan::Place place = job.plan.place(i);
    if (place.block >= drafts[place.group].size()) return true;
    BlockId& target = drafts[place.group][place.block];
    // Blocks that another request has computed meanwhile are shared, not written.
    if (target != kNoBlock) writes.push_back({i, target});
    target = kNoBlock;
  }
  // A draft that no entry fills was cached before and has been evicted since.
  for (const auto& table : drafts) {
    if (std::any_of(table.begin(), table.end(), [](BlockId b) { return b != kNoBlock; }))
      return true;
  }
  if (!write(job, writes)) return false;
  // What was loaded may have been forgotten since.
  const Passage passage(*this);
  {
    const base::Lock lock(mutex_);
    if (job.forgets != forgets_ || !forgetting_.empty()) return true;
  }
  if (!lease.commit(depth)) return true;
  for (GroupIndex g = 0; g < drafts.size(); ++g) {
    if (grid_.reaches[g].kind != tree::Reach::recurrent) continue;
    if (!lease.commit_checkpoint(g, depth) || !lease.hold_checkpoint(g, depth)) return true;
  }
  credit(job, depth, needed, restored);
  restored.hold = *std::move(leased);
  return true;
}

bool BlockTiers::write(Job& job, std::span<const Write> writes) {
  const auto bytes_of = [&](const Write& one) { return job.loaded[one.index].payload->span(); };
  const auto group_of = [&](const Write& one) { return job.plan.place(one.index).group; };
  // Payloads that lie one after the other, as those of a transfer arena mostly do, go in one
  // request: a mover is many times as fast with it.
  std::vector<BlockId> targets;
  std::vector<size_t> ends;
  for (size_t i = 0; i < writes.size(); ++i) {
    targets.push_back(writes[i].target);
    const bool last = i + 1 == writes.size();
    if (last || group_of(writes[i]) != group_of(writes[i + 1]) ||
        bytes_of(writes[i]).data() + bytes_of(writes[i]).size() != bytes_of(writes[i + 1]).data()) {
      ends.push_back(i + 1);
    }
  }
  Transfers transfers(ends.size());
  for (size_t n = 0, begin = 0; n < ends.size(); begin = ends[n++]) {
    const auto first = bytes_of(writes[begin]), last = bytes_of(writes[ends[n] - 1]);
    const auto bytes = static_cast<size_t>(last.data() + last.size() - first.data());
    options_.io->write(group_of(writes[begin]), std::span(targets).subspan(begin, ends[n] - begin),
                       {first.data(), bytes}, &Transfers::done, transfers.one(n));
  }
  transfers.wait();
  bool all = true;
  for (size_t n = 0, begin = 0; n < ends.size(); begin = ends[n++]) {
    if (transfers.good(n)) continue;
    for (size_t i = begin; i < ends[n]; ++i) {
      job.there[writes[i].index] = 0;
      job.loaded[writes[i].index] = {};
    }
    all = false;
  }
  return all;
}

// Credits tokens to the level that the first group's blocks came from. Tokens for which no block
// came are credited to the level of the last entry: without it the others would have been useless.
void BlockTiers::credit(const Job& job, uint32_t depth, std::span<const uint32_t> needed,
                        RestoredBlocks& restored) const {
  const uint32_t first = job.reused / grid_.unit_tokens * grid_.unit_tokens;
  uint32_t left = restored.restored_tokens = depth - first;
  for (const uint32_t i : needed) {
    const EntryInfo& info = job.plan.wanted()[i].info;
    if (job.plan.place(i).group != 0 || job.plan.wanted()[i].key.kind != EntryKind::block) continue;
    const uint32_t tokens = info.end - std::max(info.begin, std::min(first, info.end));
    restored.level_tokens[job.loaded[i].level] += tokens;
    left -= tokens;
  }
  if (!needed.empty()) restored.level_tokens[job.loaded[needed.back()].level] += left;
}

Result<void> BlockTiers::prefetch(CachePort& cache, const Scope& scope, const Prompt& prompt) try {
  STEMMA_TRY(const Report report, cache.lookup(scope, prompt, {.allow_copy = false}));
  STEMMA_TRY(PromptKeys keys, PromptKeys::of(scope, prompt));
  const auto length = static_cast<uint32_t>(prompt.tokens.size());
  const RestorePlan plan(grid_, keys, report, last_depth(keys.units(), length, {}));
  stack_.prefetch(plan.wanted());
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to prefetch blocks");
}

}  // namespace stemma::tier
