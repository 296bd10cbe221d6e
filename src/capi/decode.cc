#include "capi/decode.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "base/invalid.h"

namespace stemma::capi {
namespace {

// The same limit as kMaxBytes.
constexpr size_t kMaxPositions = 0x7FFF'FFFFU;
constexpr size_t kMaxAdapters = 65'536;
constexpr size_t kMaxQuotas = 4'096;

using base::invalid;

// Memory that a call needs only while it runs. Nothing is destroyed when a thread ends: destructors
// of the caller's own thread-local objects may still release leases then.
constinit thread_local std::array<PriorityRange, kMaxPriorityRanges> range_room{};

struct Text {
  const stemma_bytes& from;
  std::string& to;
  const char* wrong;
};

Result<void> decode_given(const stemma_retain& retain, Retain& out) {
  if (retain.priority > kMaxPriority) {
    return invalid("retain.priority is more than 100", retain.priority);
  }
  if (retain.phase > STEMMA_SESSION_ACTIVE) {
    return invalid("retain.phase is no stemma_session_phase", retain.phase);
  }
  if (retain.finish > STEMMA_FINISH_CANCELLED) {
    return invalid("retain.finish is no stemma_finish_reason", retain.finish);
  }
  if (retain.will_return > 1) {
    return invalid("retain.will_return is neither 0 nor 1", retain.will_return);
  }
  if (retain.reserved != 0) return invalid("retain.reserved is not 0", retain.reserved);
  if (retain.ranges == nullptr && retain.range_count != 0) {
    return invalid("retain.ranges is null, and range_count is not 0");
  }
  if (retain.range_count > kMaxPriorityRanges) return invalid("retain.range_count is more than 64");
  for (size_t i = 0; i < retain.range_count; ++i) {
    const stemma_priority_range& range = retain.ranges[i];
    if (range.priority > kMaxPriority) {
      return invalid("priority of this range is more than 100", static_cast<uint32_t>(i));
    }
    if (range.reserved != 0) {
      return invalid("reserved of this range is not 0", static_cast<uint32_t>(i));
    }
    range_room[i] = {.begin = range.begin,
                     .end = range.end,
                     .priority = static_cast<Priority>(range.priority),
                     .ttl_ns = range.ttl_ns};
  }
  out = Retain{.priority = static_cast<Priority>(retain.priority),
               .ttl_ns = retain.ttl_ns,
               .ranges = std::span(range_room).first(retain.range_count),
               .session = SessionId{retain.session},
               .phase = static_cast<SessionPhase>(retain.phase),
               .session_ttl_ns = retain.session_ttl_ns,
               .will_return = retain.will_return != 0,
               .finish = static_cast<FinishReason>(retain.finish),
               .expected_return_ns = retain.expected_return_ns};
  return {};
}

void encode(const Counts& counts, stemma_counts& out) noexcept {
  static_assert(std::size(decltype(out.outcomes){}) >= kOutcomeCount);
  static_assert(std::size(decltype(out.reasons){}) >= kMissReasonCount);
  std::copy(counts.outcomes.begin(), counts.outcomes.end(), out.outcomes);
  std::copy(counts.reasons.begin(), counts.reasons.end(), out.reasons);
  out.lookups = counts.lookups;
  out.queried_tokens = counts.queried_tokens;
  out.reused_tokens = counts.reused_tokens;
  out.copied_tokens = counts.copied_tokens;
  out.computed_tokens = counts.computed_tokens;
}

}  // namespace

Result<Scope> decode(const stemma_scope* scope) noexcept {
  if (scope == nullptr) return invalid("scope is null");
  std::array<uint8_t, 32> digest;
  std::copy_n(scope->digest, digest.size(), digest.begin());
  return Scope::from_digest(digest);
}

Result<Scope> decode(const stemma_scope_spec* given) {
  if (given == nullptr) return invalid("spec is null");
  STEMMA_TRY(const stemma_scope_spec c, read_sized(given));
  ScopeSpec spec;
  for (const Text& text :
       {Text{c.model, spec.model, "spec.model: null, or longer than 2^31 - 1"},
        Text{c.kv_types, spec.kv_types, "spec.kv_types: null, or longer than 2^31 - 1"},
        Text{c.layout, spec.layout, "spec.layout: null, or longer than 2^31 - 1"},
        Text{c.rope_and_window, spec.rope_and_window,
             "spec.rope_and_window: null, or longer than 2^31 - 1"},
        Text{c.tenant_salt, spec.tenant_salt, "spec.tenant_salt: null, or longer than 2^31 - 1"},
        Text{c.caller_namespace, spec.caller_namespace,
             "spec.caller_namespace: null, or longer than 2^31 - 1"}}) {
    if ((text.from.data == nullptr && text.from.size != 0) || text.from.size > kMaxBytes) {
      return invalid(text.wrong);
    }
    if (text.from.size != 0) {
      text.to.assign(static_cast<const char*>(text.from.data), text.from.size);
    }
  }
  if (c.adapters == nullptr && c.adapter_count != 0) {
    return invalid("spec.adapters is null, and adapter_count is not 0");
  }
  if (c.adapter_count > kMaxAdapters) return invalid("spec.adapter_count is more than 65,536");
  for (size_t i = 0; i < c.adapter_count; ++i) {
    const stemma_scope_adapter& adapter = c.adapters[i];
    if ((adapter.name.data == nullptr && adapter.name.size != 0) || adapter.name.size > kMaxBytes) {
      return invalid("name of this adapter: null, or longer than 2^31 - 1",
                     static_cast<uint32_t>(i));
    }
    ScopeAdapter& to = spec.adapters.emplace_back();
    if (adapter.name.size != 0) {
      to.name.assign(static_cast<const char*>(adapter.name.data), adapter.name.size);
    }
    to.generation = adapter.generation;
    to.scale = adapter.scale;
  }
  spec.state_format = c.state_format;
  return Scope::make(spec);
}

Result<Prompt> decode(const stemma_prompt* prompt, MediaRoom& room) {
  if (prompt == nullptr) return invalid("prompt is null");
  if (prompt->tokens == nullptr && prompt->token_count != 0) {
    return invalid("prompt.tokens is null, and token_count is not 0");
  }
  if (prompt->token_count > kMaxPositions) {
    return Error(Errc::out_of_range, "prompt.token_count is more than 2^31 - 1");
  }
  Prompt out{.tokens = {prompt->tokens, prompt->token_count}};
  if (prompt->media_count == 0) return out;
  if (prompt->media == nullptr) return invalid("prompt.media is null, and media_count is not 0");
  if (prompt->media_count > prompt->token_count) {
    return Error(Errc::out_of_range, "prompt.media_count is more than there are positions");
  }
  MediaItem* const items = room.take(prompt->media_count);
  for (size_t i = 0; i < prompt->media_count; ++i) {
    const stemma_media_item& item = prompt->media[i];
    if (item.kind < STEMMA_MEDIA_IMAGE || item.kind > STEMMA_MEDIA_OTHER) {
      return invalid("kind of this media item is no stemma_media_kind", static_cast<uint32_t>(i));
    }
    if (item.causal > 1) {
      return invalid("causal of this media item is neither 0 nor 1", static_cast<uint32_t>(i));
    }
    MediaItem& to = items[i];
    to.kind = static_cast<MediaKind>(item.kind);
    std::copy_n(item.digest, to.digest.size(), to.digest.begin());
    to.offset = item.offset;
    to.length = item.length;
    to.causal = item.causal != 0;
  }
  out.media = {items, prompt->media_count};
  return out;
}

Result<void> decode(const stemma_lookup_options* given, LookupOptions& out) noexcept {
  if (given == nullptr) return {};
  STEMMA_TRY(const stemma_lookup_options c, read_sized(given));
  if ((c.read | c.write | c.allow_copy | c.want_logits) > 1) {
    if (c.read > 1) return invalid("lookup.read is neither 0 nor 1", c.read);
    if (c.write > 1) return invalid("lookup.write is neither 0 nor 1", c.write);
    if (c.allow_copy > 1) return invalid("lookup.allow_copy is neither 0 nor 1", c.allow_copy);
    return invalid("lookup.want_logits is neither 0 nor 1", c.want_logits);
  }
  if (c.reserved != 0) return invalid("lookup.reserved is not 0", c.reserved);
  out = LookupOptions{.at_most = c.at_most,
                      .evaluate_at_least = c.evaluate_at_least,
                      .read = c.read != 0,
                      .write = c.write != 0,
                      .allow_copy = c.allow_copy != 0,
                      .want_logits = c.want_logits != 0};
  return {};
}

Result<void> decode(const stemma_retain* given, Retain& out) {
  if (given == nullptr) return {};
  STEMMA_TRY(const stemma_retain retain, read_sized(given));
  return decode_given(retain, out);
}

Result<void> decode(const stemma_lease_options* given, LeaseOptions& out) {
  if (given == nullptr) return {};
  STEMMA_TRY(const stemma_lease_options c, read_sized(given));
  STEMMA_TRY_VOID(decode(c.lookup, out.lookup));
  STEMMA_TRY_VOID(decode(c.retain, out.retain));
  out.tenant = TenantId{c.tenant};
  out.draft_tokens = c.draft_tokens;
  out.fill_to = c.fill_to;
  return {};
}

Result<std::vector<TenantQuota>> decode_quotas(const stemma_tenant_quota* quotas, size_t count) {
  if (quotas == nullptr && count != 0) {
    return invalid("options.quotas is null, and quota_count is not 0");
  }
  if (count > kMaxQuotas) return invalid("options.quota_count is more than 4,096");
  std::vector<TenantQuota> out;
  for (size_t i = 0; i < count; ++i) {
    if (quotas[i].reserved != 0) {
      return invalid("reserved of this quota is not 0", static_cast<uint32_t>(i));
    }
    out.push_back({.tenant = TenantId{quotas[i].tenant}, .bytes = quotas[i].bytes});
  }
  return out;
}

Result<Options> decode(const stemma_options* given) {
  if (given == nullptr) return invalid("options is null");
  STEMMA_TRY(const stemma_options c, read_sized(given));
  if (c.enabled > 1) return invalid("options.enabled is neither 0 nor 1", c.enabled);
  if (c.content_keys > 1) return invalid("options.content_keys is neither 0 nor 1", c.content_keys);
  if (c.reserved != 0) return invalid("options.reserved is not 0", c.reserved);
  Options options;
  STEMMA_TRY(options.groups, decode_groups(c.groups, c.group_count));
  STEMMA_TRY(options.quotas, decode_quotas(c.quotas, c.quota_count));
  options.enabled = c.enabled != 0;
  options.budget_bytes = c.budget_bytes;
  options.logits_bytes = c.logits_bytes;
  options.pin_share = c.pin_share;
  options.index_cells = c.index_cells;
  options.content_keys = c.content_keys != 0;
  options.event_capacity = c.event_capacity;
  options.stats_window_ns = c.stats_window_ns;
  if (c.policy != nullptr) options.policy = c.policy;
  return options;
}

Result<std::vector<GroupOptions>> decode_groups(const stemma_group_options* groups, size_t count) {
  if (groups == nullptr || count == 0) return invalid("options.groups: at least one is needed");
  if (count > kMaxGroups) {
    return invalid("options.group_count is more than STEMMA_MAX_GROUPS",
                   static_cast<uint32_t>(std::min<size_t>(count, Error::kNoValue - 1)));
  }
  // The caller's elements may be larger or smaller than ours; their size is the stride.
  const uint32_t stride = groups->struct_size;
  std::vector<GroupOptions> out;
  for (uint32_t g = 0; g < count; ++g) {
    const auto* given = reinterpret_cast<const stemma_group_options*>(
        reinterpret_cast<const uint8_t*>(groups) + size_t{g} * stride);
    STEMMA_TRY(const stemma_group_options group, read_sized(given));
    if (group.struct_size != stride) {
      return invalid("struct_size of this group is not that of the first", g);
    }
    if (group.attention > STEMMA_ATTENTION_RECURRENT) {
      return invalid("attention of this group is no stemma_attention", g);
    }
    out.push_back({.attention = static_cast<Attention>(group.attention),
                   .block_tokens = group.block_tokens,
                   .capacity_blocks = group.capacity_blocks,
                   .window_tokens = group.window_tokens,
                   .sink_tokens = group.sink_tokens,
                   .block_bytes = group.block_bytes});
  }
  return out;
}

Result<OnBusy> decode_on_busy(uint32_t on_busy) noexcept {
  if (on_busy == STEMMA_ON_BUSY_REFUSE) return OnBusy::refuse;
  if (on_busy == STEMMA_ON_BUSY_DEFER) return OnBusy::defer;
  return invalid("on_busy is no stemma_on_busy", on_busy);
}

Result<void> check_fence(const stemma_fence* fence) noexcept {
  if (fence != nullptr && fence->signalled == nullptr) return invalid("fence.signalled is null");
  return {};
}

void encode(const Report& report, stemma_report* out) noexcept {
  write_sized(out, {.struct_size = 0,
                    .prompt_tokens = report.prompt_tokens,
                    .matched_tokens = report.matched_tokens,
                    .reused_tokens = report.reused_tokens,
                    .copied_tokens = report.copied_tokens,
                    .to_compute_tokens = report.to_compute_tokens,
                    .checkpoint_would_help_at = report.checkpoint_would_help_at,
                    .limiting_group = report.limiting_group,
                    .outcome = static_cast<uint32_t>(report.outcome),
                    .reason = static_cast<uint32_t>(report.reason)});
}

void encode(const Stats& stats, stemma_stats* out) noexcept {
  stemma_stats c{};
  c.group_count = stats.group_count;
  encode(stats.total, c.total);
  encode(stats.window, c.window);
  c.window_ns = stats.window_ns;
  for (uint32_t g = 0; g < stats.group_count; ++g) {
    const GroupStats& group = stats.groups[g];
    c.groups[g] = {.capacity_blocks = group.capacity_blocks,
                   .free_blocks = group.free_blocks,
                   .cached_blocks = group.cached_blocks,
                   .draft_blocks = group.draft_blocks,
                   .peak_used_blocks = group.peak_used_blocks,
                   .reserved = 0,
                   .block_bytes = group.block_bytes};
    c.evictable_blocks[g] = group.evictable_blocks;
  }
  c.leases = stats.leases;
  c.scopes = stats.scopes;
  c.evicted_blocks = stats.evicted_blocks;
  c.duplicate_blocks = stats.duplicate_blocks;
  c.tails_published = stats.tails_published;
  c.forks = stats.forks;
  c.rewinds = stats.rewinds;
  c.pin_expiries = stats.pin_expiries;
  c.quota_refusals = stats.quota_refusals;
  c.orphaned_blocks = stats.orphaned_blocks;
  c.stale_walks = stats.stale_walks;
  c.hint_repairs = stats.hint_repairs;
  c.markers_dropped = stats.markers_dropped;
  c.exact_counts = stats.exact_counts;
  c.pinned_blocks = stats.pinned_blocks;
  c.logits_bytes = stats.logits_bytes;
  c.checkpoints = stats.checkpoints;
  c.index_bytes = stats.index_bytes;
  c.event_bytes = stats.event_bytes;
  c.kv_bytes_used = stats.kv_bytes_used;
  c.kv_bytes_capacity = stats.kv_bytes_capacity;
  static_assert(STEMMA_HISTOGRAM_BUCKETS == kHistogramBuckets);
  std::copy(stats.match_tokens.begin(), stats.match_tokens.end(), c.match_tokens.buckets);
  std::copy(stats.eviction_age_us.begin(), stats.eviction_age_us.end(), c.eviction_age_us.buckets);
  write_sized(out, c);
}

// These numbers mean the same in C and in C++.
static_assert(STEMMA_MAX_GROUPS == kMaxGroups && STEMMA_TOKEN_LIMIT == kTokenLimit);
static_assert(STEMMA_NO_BLOCK == to_index(kNoBlock) && STEMMA_NEVER == kNever);
static_assert(STEMMA_ALL == LeaseOptions::kWholePrompt && STEMMA_ALL == PriorityRange::kOpenEnd);
static_assert(STEMMA_DEFAULT_PRIORITY == kDefaultPriority && STEMMA_MAX_PRIORITY == kMaxPriority);
static_assert(STEMMA_OUTCOME_REFUSED == static_cast<uint32_t>(Outcome::refused));
static_assert(STEMMA_MISS_GAVE_UP == static_cast<uint32_t>(MissReason::gave_up));
static_assert(STEMMA_ATTENTION_RECURRENT == static_cast<uint32_t>(Attention::recurrent));
static_assert(STEMMA_SESSION_ACTIVE == static_cast<uint32_t>(SessionPhase::active));
static_assert(STEMMA_FINISH_CANCELLED == static_cast<uint32_t>(FinishReason::cancelled));
static_assert(STEMMA_MEDIA_OTHER == static_cast<uint32_t>(MediaKind::other));
static_assert(STEMMA_EVENT_CLEARED == static_cast<uint32_t>(EventKind::cleared));

}  // namespace stemma::capi
