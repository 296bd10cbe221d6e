// stemma_paged_tiers_*: BlockTiers over a cache that is known only through the C ABI.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "capi/tiers/handles.h"
#include "tier/block_tiers.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED(stemma_paged_tiers_options, STEMMA_PAGED_TIERS_OPTIONS_INIT);

namespace {

using base::invalid;

// Turns a status from libstemma.so into a Result.
Result<void> answered(stemma_status status) noexcept {
  if (status == STEMMA_OK) return {};
  return Error(static_cast<Errc>(status), kNoted);
}

// The caller's read and write functions. libstemma.so numbers the transfers, so that
// stemma_io_done() ends them.
class AbiIo final : public BlockIo {
 public:
  explicit AbiIo(const stemma_block_io& io) noexcept : io_(io) {}
  void copy(std::span<const BlockCopy>, Done done, void* user) override {
    done(user, Error(Errc::unsupported, "tiers do not copy"));
  }
  void read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override {
    if (const stemma_io io = begin(done, user); io != 0) {
      io_.read(io_.user, io, group, raw(blocks), blocks.size(), bytes.data(), bytes.size());
    }
  }
  void write(GroupIndex group, std::span<const BlockId> blocks, std::span<const uint8_t> bytes,
             Done done, void* user) override {
    if (const stemma_io io = begin(done, user); io != 0) {
      io_.write(io_.user, io, group, raw(blocks), blocks.size(), bytes.data(), bytes.size());
    }
  }

 private:
  struct Waiting {
    Done done;
    void* user;
  };
  static_assert(sizeof(BlockId) == sizeof(uint32_t));
  static const uint32_t* raw(std::span<const BlockId> blocks) noexcept {
    return reinterpret_cast<const uint32_t*>(blocks.data());
  }
  static void ended(void* user, stemma_status outcome) {
    const std::unique_ptr<Waiting> waiting(static_cast<Waiting*>(user));
    waiting->done(waiting->user, outcome == STEMMA_OK ? Result<void>()
                                                      : Error(static_cast<Errc>(outcome),
                                                              "the caller's transfer failed"));
  }
  // Returns 0 after telling `done` that there is no memory.
  static stemma_io begin(Done done, void* user) {
    auto* const waiting = new (std::nothrow) Waiting{done, user};
    const stemma_io io = waiting == nullptr ? 0 : stemma_io_begin(ended, waiting);
    if (io == 0) {
      delete waiting;
      done(user, Error(Errc::out_of_memory, "no memory for another transfer"));
    }
    return io;
  }

  stemma_block_io io_;
};

class AbiLease final : public tier::LeasePort {
 public:
  // A lease of the caller's. Fails with the error of stemma_lease_positions().
  static Result<std::unique_ptr<AbiLease>> of(stemma_lease lease) {
    auto made = std::make_unique<AbiLease>();
    made->lease_ = lease;
    STEMMA_TRY_VOID(made->stand());
    return made;
  }
  // Our own lease, which ends with this unless taken. Fails like stemma_cache_lease().
  static Result<std::unique_ptr<AbiLease>> own(stemma_cache* cache, const stemma_scope* scope,
                                               const stemma_prompt* prompt,
                                               const stemma_lease_options& options) {
    auto made = std::make_unique<AbiLease>();
    STEMMA_TRY_VOID(answered(stemma_cache_lease(cache, scope, prompt, &options, &made->lease_)));
    made->own_ = true;
    STEMMA_TRY_VOID(made->stand());
    return made;
  }
  AbiLease() = default;
  AbiLease(const AbiLease&) = delete;
  AbiLease& operator=(const AbiLease&) = delete;
  ~AbiLease() override {
    if (own_) stemma_lease_release(lease_, nullptr);
  }
  uint32_t reused() const override { return at_.reused; }
  uint32_t committed() const override { return at_.committed; }
  Result<void> commit(uint32_t n) override {
    STEMMA_TRY_VOID(answered(stemma_lease_commit(lease_, n, nullptr)));
    static_cast<void>(stemma_lease_adopt_canonical(lease_, nullptr));
    return {};
  }
  std::vector<BlockId> blocks(GroupIndex group) const override {
    return table(stemma_lease_block_table, group);
  }
  std::vector<BlockId> drafts(GroupIndex group) const override {
    return table(stemma_lease_draft_table, group);
  }
  Result<BlockId> draft_checkpoint(GroupIndex group) override {
    uint32_t slot = 0;
    STEMMA_TRY_VOID(answered(stemma_lease_draft_checkpoint(lease_, group, &slot)));
    return BlockId{slot};
  }
  Result<void> commit_checkpoint(GroupIndex group, uint32_t depth) override {
    return answered(stemma_lease_commit_checkpoint(lease_, group, depth));
  }
  Result<Checkpoint> hold_checkpoint(GroupIndex group, uint32_t at_most) const override {
    uint32_t depth = 0, slot = 0;
    STEMMA_TRY_VOID(answered(stemma_lease_hold_checkpoint(lease_, group, at_most, &depth, &slot)));
    return Checkpoint{depth, BlockId{slot}};
  }
  stemma_lease take() noexcept {
    own_ = false;
    return lease_;
  }

 private:
  std::vector<BlockId> table(decltype(&stemma_lease_block_table) which, GroupIndex group) const {
    uint32_t count = 0;
    if (stemma_lease_block_count(lease_, group, &count) != STEMMA_OK) return {};
    std::vector<BlockId> table(count, kNoBlock);
    const stemma_status status = which(lease_, group, reinterpret_cast<uint32_t*>(table.data()),
                                       count, STEMMA_NO_BLOCK, nullptr);
    if (status != STEMMA_OK) table.clear();
    return table;
  }
  Result<void> stand() noexcept { return answered(stemma_lease_positions(lease_, &at_)); }

  stemma_lease lease_ = 0;
  bool own_ = false;
  stemma_positions at_{};
};

// The cache during one call, with the arguments of that call.
class AbiCache final : public tier::CachePort {
 public:
  AbiCache(stemma_cache* cache, const stemma_scope* scope, const stemma_prompt* prompt,
           const stemma_lease_options& options) noexcept
      : cache_(cache), scope_(scope), prompt_(prompt), options_(options) {}

  Result<Report> lookup(const Scope&, const Prompt&, const LookupOptions& options) override {
    const stemma_lookup_options c = raw(options);
    stemma_report report = STEMMA_REPORT_INIT;
    STEMMA_TRY_VOID(answered(stemma_cache_lookup(cache_, scope_, prompt_, &c, &report)));
    Report out;
    out.reused_tokens = report.reused_tokens;
    out.matched_tokens = report.matched_tokens;
    out.outcome = static_cast<Outcome>(report.outcome);
    return out;
  }
  Result<std::unique_ptr<tier::LeasePort>> lease(const Scope&, const Prompt&,
                                                 const LeaseOptions& options) override {
    const stemma_lookup_options lookup = raw(options.lookup);
    stemma_lease_options c = options_;  // The caller sets tenant and retention.
    c.lookup = &lookup;
    c.draft_tokens = options.draft_tokens;
    c.fill_to = options.fill_to;
    STEMMA_TRY(std::unique_ptr<AbiLease> port, AbiLease::own(cache_, scope_, prompt_, c));
    return std::unique_ptr<tier::LeasePort>(std::move(port));
  }
  Result<uint32_t> reclaim(uint32_t positions, uint32_t most, const Save& save) override {
    struct Call {
      const Save& save;
      bool failed = false;
    } call{save};
    const auto show = [](void* user, const stemma_reclaimed_block* blocks, size_t count) {
      Call& to = *static_cast<Call*>(user);
      try {
        std::vector<tier::Outgoing> out(count);
        for (size_t i = 0; i < count; ++i) {
          const stemma_reclaimed_block& from = blocks[i];
          out[i].group = from.group;
          out[i].block = BlockId{from.block};
          out[i].end = from.end;
          std::copy(std::begin(from.key), std::end(from.key), out[i].key.bytes.begin());
          if (from.words != nullptr) out[i].words = {from.words, size_t{from.end - from.begin}};
        }
        to.save(out);
      } catch (const std::bad_alloc&) {
        to.failed = true;
      }
    };
    uint32_t went = 0;
    STEMMA_TRY_VOID(answered(stemma_cache_reclaim(cache_, positions, most, show, &call, &went)));
    if (call.failed) return Error(Errc::out_of_memory, "no memory to write blocks back");
    return went;
  }

 private:
  static stemma_lookup_options raw(const LookupOptions& options) noexcept {
    return {.struct_size = sizeof(stemma_lookup_options),
            .at_most = options.at_most,
            .evaluate_at_least = options.evaluate_at_least,
            .read = options.read ? 1U : 0U,
            .write = options.write ? 1U : 0U,
            .allow_copy = options.allow_copy ? 1U : 0U,
            .want_logits = options.want_logits ? 1U : 0U,
            .reserved = 0};
  }
  stemma_cache* cache_;
  const stemma_scope* scope_;
  const stemma_prompt* prompt_;
  stemma_lease_options options_;
};

}  // namespace

struct PagedTiersHome {
  PagedTiersHome(StackHome& stack, const stemma_block_io& given, tier::BlockTiersOptions options)
      : use(stack), io(given), blocks(with_io(std::move(options), io), use.stack()) {}
  static tier::BlockTiersOptions with_io(tier::BlockTiersOptions options, BlockIo& io) {
    options.io = &io;
    return options;
  }
  StackUse use;
  AbiIo io;
  tier::BlockTiers blocks;
};

}  // namespace stemma::capi

struct stemma_paged_tiers {
  static constexpr const char* kNull = "tiers is null";
  static constexpr const char* kForeign = "tiers points to no stemma_paged_tiers of this library";
  static constexpr const char* kDestroyed = "these tiers were destroyed, or never created";
  std::atomic<stemma::capi::PagedTiersHome*> home{nullptr};
};

namespace {
constinit Places<stemma_paged_tiers, PagedTiersHome> paged_tiers;

// The start of every call about a prompt.
struct Request {
  Result<void> read(const stemma_scope* in, const stemma_prompt* words,
                    const stemma_lease_options* said) {
    STEMMA_TRY(scope, decode(in));
    STEMMA_TRY(prompt, decode(words, room));
    STEMMA_TRY(given, read_sized(said));
    return decode(said, options);
  }
  Scope scope = Scope::from_digest({});
  Prompt prompt;
  LeaseOptions options;
  stemma_lease_options given = STEMMA_LEASE_OPTIONS_INIT;
  MediaRoom room;
};
}  // namespace

stemma_status stemma_paged_tiers_create(stemma_stack* stack,
                                        const stemma_paged_tiers_options* options,
                                        stemma_paged_tiers** out) {
  return with(__func__, stacks(), stack, [&](StackHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    if (options == nullptr) return invalid("options is null");
    STEMMA_TRY(const stemma_paged_tiers_options c, read_sized(options));
    if (c.keep_words > 1) return invalid("options.keep_words is neither 0 nor 1", c.keep_words);
    if (c.io == nullptr) return invalid("options.io is null");
    STEMMA_TRY(const stemma_block_io io, read_sized(c.io));
    if (io.reserved != 0) return invalid("io.reserved is not 0", io.reserved);
    if (io.read == nullptr || io.write == nullptr) {
      return invalid("options.io needs read and write");
    }
    tier::BlockTiersOptions full;
    STEMMA_TRY(full.groups, decode_groups(c.groups, c.group_count));
    full.layout = c.layout;
    full.keep_words = c.keep_words != 0;
    STEMMA_TRY_VOID(tier::BlockTiers::check(full));
    STEMMA_TRY(*out,
               place(paged_tiers, std::make_unique<PagedTiersHome>(home, io, std::move(full))));
    return {};
  });
}

stemma_status stemma_paged_tiers_destroy(stemma_paged_tiers* tiers) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    if (!paged_tiers.forget(tiers, &home)) return paged_tiers.stale();
    delete &home;
    return {};
  });
}

stemma_status stemma_paged_tiers_restore(stemma_paged_tiers* tiers, stemma_cache* cache,
                                         const stemma_scope* scope, const stemma_prompt* prompt,
                                         const stemma_lease_options* options,
                                         stemma_restored* out) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, options));
    AbiCache port(cache, scope, prompt, request.given);
    STEMMA_TRY(tier::RestoredBlocks got,
               home.blocks.restore(port, request.scope, request.prompt, request.options));
    *out = {.cached_tokens = got.cached_tokens,
            .stored_tokens = got.stored_tokens,
            .restored_tokens = got.restored_tokens,
            .shared = got.shared ? 1U : 0U,
            .level_tokens = {},
            .hold = 0};
    std::copy(got.level_tokens.begin(), got.level_tokens.end(), out->level_tokens);
    // AbiCache::lease() made it.
    if (got.hold != nullptr) out->hold = static_cast<AbiLease&>(*got.hold).take();
    return {};
  });
}

stemma_status stemma_paged_tiers_prefetch(stemma_paged_tiers* tiers, stemma_cache* cache,
                                          const stemma_scope* scope, const stemma_prompt* prompt) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, nullptr));
    AbiCache port(cache, scope, prompt, request.given);
    return home.blocks.prefetch(port, request.scope, request.prompt);
  });
}

stemma_status stemma_paged_tiers_store(stemma_paged_tiers* tiers, const stemma_scope* scope,
                                       const stemma_prompt* prompt, stemma_lease lease,
                                       uint32_t from, uint32_t priority, uint32_t* stored) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    Request request;
    STEMMA_TRY_VOID(request.read(scope, prompt, nullptr));
    if (priority > kMaxPriority) return invalid("priority is more than 100", priority);
    STEMMA_TRY(const auto port, AbiLease::of(lease));
    STEMMA_TRY(const uint32_t blocks, home.blocks.store(request.scope, request.prompt, *port, from,
                                                        static_cast<Priority>(priority)));
    if (stored != nullptr) *stored = blocks;
    return {};
  });
}

stemma_status stemma_paged_tiers_make_room(stemma_paged_tiers* tiers, stemma_cache* cache,
                                           uint32_t positions, uint32_t* stored) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    AbiCache port(cache, nullptr, nullptr, STEMMA_LEASE_OPTIONS_INIT);
    STEMMA_TRY(const uint32_t blocks, home.blocks.make_room(port, positions));
    if (stored != nullptr) *stored = blocks;
    return {};
  });
}

stemma_status stemma_paged_tiers_forget(stemma_paged_tiers* tiers, const stemma_scope* scope,
                                        const stemma_prompt* prefix, uint64_t wait_ns,
                                        stemma_drop_fn drop, void* user,
                                        stemma_level_purged* levels, size_t level_count,
                                        uint32_t* complete) {
  return with(__func__, paged_tiers, tiers, [&](PagedTiersHome& home) -> Result<void> {
    Forgetting what;
    STEMMA_TRY_VOID(what.read(scope, prefix, levels, level_count, complete));
    const uint64_t until_ns = in(wait_ns);
    const Purge purge = what.scope ? tier::BlockTiers::what_follows(*what.scope, what.prefix)
                                   : home.blocks.everything();
    tell(home.blocks.forget(purge, until_ns, what.drop(drop, user)), levels, level_count, complete);
    return {};
  });
}
