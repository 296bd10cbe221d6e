#include "stemma/tier/paged_tiers.h"

#include <new>
#include <utility>

#include "tier/block_tiers.h"

namespace stemma::tier {

namespace {

class OwnLease final : public LeasePort {
 public:
  explicit OwnLease(Lease&& lease) noexcept : lease_(std::move(lease)) {}
  uint32_t reused() const override { return lease_.reused(); }
  uint32_t committed() const override { return lease_.committed(); }
  Result<void> commit(uint32_t n) override {
    STEMMA_TRY_VOID(lease_.commit(n));
    lease_.adopt_canonical();
    return {};
  }
  std::vector<BlockId> blocks(GroupIndex group) const override { return of(lease_, group); }
  std::vector<BlockId> drafts(GroupIndex group) const override {
    std::vector<BlockId> table(lease_.block_count(group), kNoBlock);
    if (!lease_.draft_table(group, table, kNoBlock)) table.clear();
    return table;
  }
  Result<BlockId> draft_checkpoint(GroupIndex group) override {
    return lease_.draft_checkpoint(group);
  }
  Result<void> commit_checkpoint(GroupIndex group, uint32_t depth) override {
    return lease_.commit_checkpoint(group, depth);
  }
  Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const override {
    return lease_.hold_checkpoint(group, at_most);
  }
  Lease take() noexcept { return std::move(lease_); }

  static std::vector<BlockId> of(const Lease& lease, GroupIndex group) {
    std::vector<BlockId> table(lease.block_count(group), kNoBlock);
    if (!lease.block_table(group, table, kNoBlock)) table.clear();
    return table;
  }

 private:
  Lease lease_;
};

// A caller's lease, to be read: it is not ours to write or commit.
class TheirLease final : public LeasePort {
 public:
  explicit TheirLease(const Lease& lease) noexcept : lease_(lease) {}
  uint32_t reused() const override { return lease_.reused(); }
  uint32_t committed() const override { return lease_.committed(); }
  Result<void> commit(uint32_t) override { return not_ours(); }
  std::vector<BlockId> blocks(GroupIndex group) const override {
    return OwnLease::of(lease_, group);
  }
  std::vector<BlockId> drafts(GroupIndex) const override { return {}; }
  Result<BlockId> draft_checkpoint(GroupIndex) override { return not_ours(); }
  Result<void> commit_checkpoint(GroupIndex, uint32_t) override { return not_ours(); }
  Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const override {
    return lease_.hold_checkpoint(group, at_most);
  }

 private:
  static Error not_ours() { return {Errc::unsupported, "the lease is not ours to change"}; }

  const Lease& lease_;
};

class OwnCache final : public CachePort {
 public:
  explicit OwnCache(PagedCache& cache) noexcept : cache_(cache) {}
  Result<Report> lookup(const Scope& scope, const Prompt& prompt,
                        const LookupOptions& options) override {
    return cache_.lookup(scope, prompt, options);
  }
  Result<std::unique_ptr<LeasePort>> lease(const Scope& scope, const Prompt& prompt,
                                           const LeaseOptions& options) override {
    STEMMA_TRY(Lease lease, cache_.lease(scope, prompt, options));
    return std::unique_ptr<LeasePort>(std::make_unique<OwnLease>(std::move(lease)));
  }
  Result<uint32_t> reclaim(uint32_t positions, uint32_t most, const Save& save) override {
    STEMMA_TRY(const Reclaimed reclaimed, cache_.reclaim(positions, most));
    std::vector<Outgoing> blocks;
    for (const Reclaimed::Block& block : reclaimed.blocks()) {
      blocks.push_back({block.group, block.block, block.end, block.key, reclaimed.words(block)});
    }
    if (!blocks.empty()) save(blocks);
    return reclaimed.evicted();
  }

 private:
  PagedCache& cache_;
};

class StackedBlocks final : public PagedTiers {
 public:
  StackedBlocks(PagedCache& cache, const BlockTiersOptions& options,
                std::unique_ptr<TierStack> stack)
      : cache_(cache), stack_(std::move(stack)), blocks_(options, *stack_) {}

  Result<Restored> restore(const Scope& scope, const Prompt& prompt,
                           const LeaseOptions& options) override {
    STEMMA_TRY(RestoredBlocks got, blocks_.restore(cache_, scope, prompt, options));
    Restored restored{.cached_tokens = got.cached_tokens,
                      .stored_tokens = got.stored_tokens,
                      .restored_tokens = got.restored_tokens,
                      .level_tokens = got.level_tokens,
                      .shared = got.shared,
                      .hold = {}};
    // OwnCache::lease() made it.
    if (got.hold != nullptr) restored.hold = static_cast<OwnLease&>(*got.hold).take();
    return restored;
  }
  Result<void> prefetch(const Scope& scope, const Prompt& prompt) override {
    return blocks_.prefetch(cache_, scope, prompt);
  }
  Result<uint32_t> store(const Scope& scope, const Prompt& prompt, const Lease& lease,
                         uint32_t from, Priority priority) override {
    return blocks_.store(scope, prompt, TheirLease(lease), from, priority);
  }
  Result<uint32_t> make_room(uint32_t positions) override {
    return blocks_.make_room(cache_, positions);
  }
  std::vector<LevelPurged> forget(const Scope& scope, const Prompt& prefix, uint64_t until_ns,
                                  const std::function<void()>& drop_here) override {
    return blocks_.forget(BlockTiers::what_follows(scope, prefix), until_ns, drop_here);
  }
  std::vector<LevelPurged> forget_everything(uint64_t until_ns,
                                             const std::function<void()>& drop_here) override {
    return blocks_.forget(blocks_.everything(), until_ns, drop_here);
  }
  TierStack& stack() noexcept override { return *stack_; }

 private:
  OwnCache cache_;
  std::unique_ptr<TierStack> stack_;
  BlockTiers blocks_;
};

}  // namespace

Result<std::unique_ptr<PagedTiers>> PagedTiers::create(const PagedTiersOptions& options,
                                                       std::unique_ptr<TierStack> stack) {
  if (options.cache == nullptr || options.io == nullptr || stack == nullptr) {
    return Error(Errc::invalid_argument, "tiers under a cache need a cache, a BlockIo and a stack");
  }
  try {
    const BlockTiersOptions blocks{.io = options.io,
                                   .groups = options.groups,
                                   .layout = options.layout,
                                   .keep_words = options.keep_words};
    STEMMA_TRY_VOID(BlockTiers::check(blocks));
    return std::unique_ptr<PagedTiers>(
        std::make_unique<StackedBlocks>(*options.cache, blocks, std::move(stack)));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for tiers under a cache");
  }
}

}  // namespace stemma::tier
