// Out of the tiers, into a cache. What goes the other way is in block_tiers_store.cc.
#include "tier/block_tiers.h"

#include <algorithm>
#include <new>

#include "tier/transfers.h"
#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

// A depth whose entries turn out damaged makes place for a shallower one, so often.
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
  // Something is computed anyway. Where a part of a block can be copied, the block that ends with the prompt
  // helps all the same, but neither a state nor a window serves a depth a little before its own.
  const uint32_t usable = key::leave_units(units, length, std::max(lookup.evaluate_at_least, 1U));
  const uint32_t useful = grid_.nested && lookup.allow_copy ? length : usable;
  return std::min(useful, lookup.at_most) / grid_.unit_tokens * grid_.unit_tokens;
}

std::shared_ptr<BlockTiers::Turn> BlockTiers::take_turn(const EntryKey& key) {
  auto made = std::make_shared<Turn>();
  const std::lock_guard lock(mutex_);
  const auto [at, mine] = turns_.try_emplace(key, std::move(made));
  return mine ? nullptr : at->second;
}

void BlockTiers::end_turn(const EntryKey& key) noexcept {
  std::shared_ptr<Turn> turn;
  {
    const std::lock_guard lock(mutex_);
    const auto at = turns_.find(key);
    turn = std::move(at->second);
    turns_.erase(at);
  }
  const std::lock_guard lock(turn->mutex);
  turn->over = true;
  turn->ended.notify_all();
}

Result<RestoredBlocks> BlockTiers::restore(CachePort& cache, const Scope& scope,
                                           const Prompt& prompt, const LeaseOptions& options) try {
  RestoredBlocks restored;
  uint64_t forgets = 0;
  {
    const std::lock_guard lock(mutex_);
    forgets = forgets_;
  }
  const uint64_t until_ns = deadline_after(Clock::monotonic().now_ns(), stack_.load_ns());
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
    const std::shared_ptr<Turn> turn = take_turn(key);
    if (turn == nullptr) {
      const auto end = [this, &key](void*) { end_turn(key); };
      const std::unique_ptr<void, decltype(end)> ended(this, end);
      Job job{cache, scope, prompt, options, plan, forgets, report.reused_tokens};
      STEMMA_TRY_VOID(bring_in(job, restored));
      return restored;
    }
    // Then look again: there is more in the cache, or nothing to be had and it is our turn.
    restored.shared = true;
    std::unique_lock lock(turn->mutex);
    if (!wait_until(turn->ended, lock, until_ns, [&] { return turn->over; })) return restored;
  }
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to restore blocks");
}

// What the prompt needs room for goes now, while it can be saved; not what the prompt will reuse.
void BlockTiers::make_room_for(CachePort& cache, const Scope& scope, const Prompt& prompt,
                               const LeaseOptions& options, uint32_t reused) {
  const auto length = static_cast<uint32_t>(prompt.tokens.size());
  for (const GroupOptions& group : grid_.groups) {
    if (group.attention != Attention::full || group.capacity_blocks == 0) continue;
    // No lease gets that much, whatever goes.
    if (length > uint64_t{group.capacity_blocks} * group.block_tokens) return;
  }
  LeaseOptions holding = options;
  holding.lookup.want_logits = false;
  const uint32_t whole = reused / grid_.unit_tokens * grid_.unit_tokens;
  const bool states =
      std::any_of(grid_.reaches.begin(), grid_.reaches.end(),
                  [](const auto& reach) { return reach.kind == tree::Reach::recurrent; });
  // A state inside a block, and the part that it ends, are held only by a lease like a request's: without
  // them there may be nothing to go on from. Elsewhere it is a part of a block, and that may go.
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
  // To a lease that fills, states are nothing: its own is yet to be written.
  for (GroupIndex g = 0; hold != nullptr && !inside && g < grid_.groups.size(); ++g) {
    if (grid_.reaches[g].kind != tree::Reach::recurrent) continue;
    static_cast<void>(hold->hold_checkpoint(g, whole));
  }
  // What cannot be saved is lost, and that is all.
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
  // The deepest of all; where some of it lies too far away, the deepest out of the levels before that.
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
    // Where one thing is of use only with all the others, what they win is the last one's.
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
  // No room: then it is computed.
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
  struct Write {
    uint32_t index;
    BlockId target;
  };
  std::vector<Write> writes;
  const std::vector<uint32_t> needed = job.plan.needed(depth);
  for (const uint32_t i : needed) {
    const RestorePlan::Place place = job.plan.place(i);
    if (place.block >= drafts[place.group].size()) return true;
    BlockId& target = drafts[place.group][place.block];
    // What somebody else computed meanwhile is shared.
    if (target != kNoBlock) writes.push_back({i, target});
    target = kNoBlock;
  }
  // What was cached and went meanwhile is not there to be written.
  for (const auto& table : drafts) {
    if (std::any_of(table.begin(), table.end(), [](BlockId b) { return b != kNoBlock; }))
      return true;
  }
  Transfers transfers(writes.size());
  for (size_t i = 0; i < writes.size(); ++i) {
    const Write& one = writes[i];
    options_.io->write(job.plan.place(one.index).group, std::span(&one.target, 1),
                       job.loaded[one.index].payload->span(), &Transfers::done, transfers.one(i));
  }
  transfers.wait();
  bool all = true;
  for (size_t i = 0; i < writes.size(); ++i) {
    if (transfers.good(i)) continue;
    job.there[writes[i].index] = 0;
    job.loaded[writes[i].index] = {};
    all = false;
  }
  if (!all) return false;
  // What was loaded before something was forgotten may be that.
  const Passage passage(*this);
  {
    const std::lock_guard lock(mutex_);
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

// Tokens are credited to where the first group's blocks came from; those for which none came, to where the
// last entry came from, without which the others would have been of no use.
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
