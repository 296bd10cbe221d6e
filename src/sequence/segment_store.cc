#include "sequence/segment_store.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "retain/policies.h"
#include "sequence/range_mover.h"
#include "sequence/segment_writer.h"

namespace stemma::sequence {
namespace {

// PagedCache always leaves a position to compute. To get all of a prompt, ask for one more.
struct Longer {
  Longer(const Prompt& asked, uint32_t at_most) : prompt(asked) {
    if (at_most < asked.tokens.size()) return;
    tokens.reserve(asked.tokens.size() + 1);
    tokens.assign(asked.tokens.begin(), asked.tokens.end());
    tokens.push_back(0);
    prompt.tokens = tokens;
  }
  std::vector<Token> tokens;
  Prompt prompt;
};

}  // namespace

Result<std::unique_ptr<SegmentStore>> SegmentStore::create(const Settings& settings) try {
  const uint64_t block_bytes = std::max<uint64_t>(settings.segment_bytes, 1);
  // Words, links, records, the last user: the most that PagedCache's index takes for a block, plus
  // the records of a slot.
  const retain::PolicyBytes policy = retain::most_bytes(settings.policy);
  const uint64_t index_bytes =
      4 * uint64_t{settings.segment_tokens} + 179 + policy.per_cell + settings.label_bytes;
  // The index of an empty cache takes up to 256 KiB, and some policies more. A small budget counts
  // only part of that, so that something is left to save in.
  const uint64_t fixed_bytes = std::min<uint64_t>(256U << 10U, settings.budget_bytes / 64) +
                               std::min<uint64_t>(policy.fixed, settings.budget_bytes / 32);
  constexpr uint64_t kMostBlocks = 1U << 26U;  // More is useless.
  const uint64_t blocks =
      std::min((settings.budget_bytes - fixed_bytes) / (block_bytes + index_bytes), kMostBlocks);
  if (blocks == 0) return std::unique_ptr<SegmentStore>();
  Options options;
  options.groups = {{.block_tokens = settings.segment_tokens,
                     .capacity_blocks = static_cast<uint32_t>(blocks),
                     .block_bytes = block_bytes}};
  options.quotas = settings.quotas;
  options.policy = settings.policy;
  options.clock = settings.clock;
  STEMMA_TRY(PagedCache cache, PagedCache::create_part(options));
  const uint32_t slots = cache.stats().groups[0].capacity_blocks;
  auto bytes = make_memory_store(slots, block_bytes);
  if (bytes == nullptr) return Error(Errc::out_of_memory, "no memory for saved segments");
  return std::unique_ptr<SegmentStore>(
      new SegmentStore(std::move(cache), std::move(bytes), settings, slots));
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for saved segments");
}

SegmentStore::SegmentStore(PagedCache cache, std::unique_ptr<ByteStore> bytes,
                           const Settings& settings, uint32_t slots)
    : cache_(std::move(cache)),
      bytes_(std::move(bytes)),
      saved_tokens_(slots),
      tokens_(settings.segment_tokens),
      slots_(slots),
      slot_bytes_(std::max<uint64_t>(settings.segment_bytes, 1)),
      clock_(settings.clock != nullptr ? settings.clock : &Clock::monotonic()),
      engine_(settings.engine),
      mover_(settings.mover) {
  if (mover_ != nullptr) {
    traits_ = engine_->traits();
    const uint64_t fixed = traits_.fixed_bytes + traits_.checkpoint_bytes;
    const uint64_t room =
        (mover_->buffer_bytes() - fixed) / std::max<uint64_t>(traits_.bytes_per_token, 1);
    range_tokens_ =
        static_cast<uint32_t>(std::min<uint64_t>(std::max(traits_.range_tokens, tokens_), room)) /
        tokens_ * tokens_;
  }
  if (settings.label_bytes == 0) return;
  labels_.resize(slots);
  evicted_.reserve(slots);
  cache_.note_evicted(&evicted_);
}

SegmentStore::~SegmentStore() { cache_.note_evicted(nullptr); }

void SegmentStore::forget_evicted() noexcept {
  for (const BlockId block : evicted_) labels_[to_index(block)] = {};
  evicted_.clear();
}

SegmentStore::Reach SegmentStore::reach(const Scope& scope, const Prompt& prompt,
                                        uint32_t at_most) const {
  LookupOptions options;
  options.at_most = at_most;
  const Longer longer(prompt, at_most);
  const Result<Report> report = cache_.lookup(scope, longer.prompt, options);
  if (!report) return {};
  return {report->reused_tokens,
          std::min(report->matched_tokens, static_cast<uint32_t>(prompt.tokens.size())),
          report->reason != MissReason::unknown_scope};
}

SegmentStore::Hold SegmentStore::hold(const Scope& scope, const Prompt& prompt, uint32_t at_most,
                                      TenantId tenant, const Retain& retain) {
  LeaseOptions options;
  // Reading is free: count it for the tenant that pays for the scope.
  options.tenant = cache_.tenant_of(scope).value_or(tenant);
  options.retain = retain;
  options.lookup.at_most = at_most;
  options.lookup.write = false;
  options.draft_tokens = 0;
  Hold hold;
  const Longer longer(prompt, at_most);
  // To use part of a segment, PagedCache needs a free block to copy it to. Without one, use whole
  // segments.
  for (const bool part : {true, false}) {
    options.lookup.allow_copy = part;
    Result<Lease> lease = cache_.lease(scope, longer.prompt, options);
    if (!lease) continue;
    const Report report = lease->report();
    hold.usable = lease->reused();
    hold.matched = std::min(report.matched_tokens, static_cast<uint32_t>(prompt.tokens.size()));
    hold.scope_known = report.reason != MissReason::unknown_scope;
    hold.lease = *std::move(lease);
    break;
  }
  return hold;
}

Result<void> SegmentStore::list(const Hold& hold, Range range, std::vector<SavedSegment>& out) const
    try {
  out.clear();
  if (range.begin >= range.end) return {};
  STEMMA_CHECK(range.end <= hold.usable);
  std::vector<BlockId> table(hold.lease.block_count(0));
  STEMMA_TRY_VOID(hold.lease.block_table(0, table));
  for (uint32_t begin = range.begin; begin < range.end;) {
    const uint32_t block = begin / tokens_;
    const uint32_t first = block * tokens_;
    const uint32_t end = std::min(range.end, first + tokens_);
    BlockId id = table[block];
    for (const BlockCopy& copy : hold.lease.copies()) {
      if (copy.target == id) id = copy.source;
    }
    const uint32_t slot = to_index(id);
    out.push_back({slot, {first, first + saved_tokens_[slot]}, {begin, end}});
    begin = end;
  }
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to list segments");
}

void Saver::wait_for(SegmentWriter& writer) { writer.wait(); }

Captured SegmentStore::capture(const Scope& scope, const Prompt& prompt, TenantId tenant,
                               const Retain& retain, Saver& saver) try {
  SegmentWriter writer(this);
  writer.begin(scope, prompt, tenant, retain, saver);
  constexpr uint64_t kNever = ~uint64_t{0};
  while (!writer.over()) {
    if (writer.read(saver)) continue;
    if (!writer.waits() && !mover_->wait_for_buffer()) writer.limit(0);
    saver.wait_for(writer);
    (void)writer.collect(saver, kNever);
  }
  return writer.captured();
} catch (const std::bad_alloc&) {
  return {CaptureFate::no_room, 0};
}

void SegmentStore::forget(const Scope& scope, const Prompt& prompt, uint32_t from) {
  forget_evicted();
  // The prompt may use only part of the last segment. It is found by that part, so the words behind
  // it, which differ, must not be asked for.
  const uint32_t end = reach(scope, prompt, static_cast<uint32_t>(prompt.tokens.size())).usable;
  const auto behind = std::find_if(prompt.media.begin(), prompt.media.end(),
                                   [&](const MediaItem& item) { return item.offset >= end; });
  const Prompt found{prompt.tokens.first(end), {prompt.media.begin(), behind}};
  (void)cache_.truncate(scope, found, from);
}

uint64_t SegmentStore::free_tokens() const {
  return uint64_t{cache_.stats().groups[0].free_blocks} * tokens_;
}

uint64_t SegmentStore::used_bytes() const { return cache_.stats().kv_bytes_used; }

}  // namespace stemma::sequence
