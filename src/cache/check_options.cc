#include "cache/check_options.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cache/books/books.h"
#include "cache/lease/record_pool.h"
#include "retain/lru.h"
#include "retain/policies.h"

namespace stemma::cache {
namespace {

constexpr uint32_t kMaxBlockTokens = 1024;
// Cells have 28-bit numbers, and a cache needs up to twice as many cells as blocks.
constexpr uint64_t kMaxCells = 1U << 27U;

using Bytes = unsigned __int128;  // Absurd sizes must not wrap around.

Bytes kv_bytes(const Options& options) {
  Bytes total = 0;
  for (const GroupOptions& group : options.groups) {
    total += Bytes{group.block_bytes} * group.capacity_blocks;
  }
  return total;
}

// An upper bound of what a full cache holds besides its KV bytes and what live leases need: cells,
// records, policy (with stamps and deadlines), sessions, records of ended leases, and the pages
// that slabs are rounded up to.
Bytes index_bytes(const Options& options, uint32_t cell_tokens) {
  const GroupOptions& front = options.groups.front();
  const bool numbered = front.attention == Attention::full && front.block_tokens == cell_tokens;
  const uint64_t cells = numbered ? front.capacity_blocks : chosen_cells(options, cell_tokens);
  // Sessions: per cell at most five quarters of a name and one last user; 48 bytes each. (Unknown
  // policy names are refused elsewhere.)
  const retain::PolicyBytes policy = retain::most_bytes(options.policy);
  uint64_t per_cell = 4 * uint64_t{cell_tokens} + 32 + 4 + 108 + policy.per_cell;
  if (options.content_keys || options.event_capacity != 0) per_cell += 32;
  Bytes total = (256 << 10U) + policy.fixed + record_allowance(options);
  for (size_t g = 0; g < options.groups.size(); ++g) {
    if (g == 0 && numbered) continue;
    per_cell += 4;
    const bool loose = options.groups[g].attention != Attention::full;
    total += Bytes{8 + (loose ? retain::most_bytes("lru").per_cell : 0)} *
                 options.groups[g].capacity_blocks +
             (32 << 10U);
  }
  return total + Bytes{per_cell} * cells;
}

Result<void> check_group(const GroupOptions& group, uint32_t index) {
  const bool window = group.attention == Attention::window;
  if (static_cast<uint8_t>(group.attention) > static_cast<uint8_t>(Attention::recurrent)) {
    return Error(Errc::invalid_argument, "unknown attention of this group", index);
  }
  if (group.attention != Attention::recurrent &&
      (!std::has_single_bit(group.block_tokens) || group.block_tokens > kMaxBlockTokens)) {
    return Error(Errc::invalid_argument, "block_tokens must be a power of two from 1 to 1024",
                 group.block_tokens);
  }
  if (window && (group.window_tokens == 0 || group.window_tokens > key::kMaxPromptPositions)) {
    return Error(Errc::invalid_argument,
                 "window_tokens of this window group must be from 1 to 2^31 - 1", index);
  }
  if (!window && (group.window_tokens != 0 || group.sink_tokens != 0)) {
    return Error(Errc::invalid_argument, "window_tokens and sink_tokens are for window groups",
                 index);
  }
  if (group.sink_tokens > key::kMaxPromptPositions) {
    return Error(Errc::invalid_argument, "sink_tokens is too large", index);
  }
  return {};
}

// Gives the group that left its capacity open as many blocks as the budget pays for, and checks
// that the budget holds everything.
Result<void> spend_budget(Options& options, GroupOptions* open, uint32_t cell_tokens) {
  const auto fits = [&] {
    return kv_bytes(options) + index_bytes(options, cell_tokens) + options.logits_bytes <=
           options.budget_bytes;
  };
  if (open != nullptr) {
    // The largest capacity that fits; more blocks never need fewer bytes.
    uint32_t low = 0;
    auto high = static_cast<uint32_t>(kMaxCells * cell_tokens / std::max(open->block_tokens, 1U));
    if (open->attention == Attention::recurrent) high = kMaxCells;
    while (low < high) {
      open->capacity_blocks = low + (high - low + 1) / 2;
      if (fits()) {
        low = open->capacity_blocks;
      } else {
        high = open->capacity_blocks - 1;
      }
    }
    open->capacity_blocks = low;
    if (low == 0) return Error(Errc::invalid_argument, "budget_bytes holds not one block");
  }
  if (fits()) return {};
  return Error(Errc::invalid_argument, "budget_bytes does not hold what the groups ask for");
}

Result<void> check_sizes(const Options& options, uint32_t cell_tokens) {
  if (kv_bytes(options) > Bytes{1} << 62U) {
    return Error(Errc::invalid_argument, "block_bytes times capacity_blocks is beyond any machine");
  }
  for (const GroupOptions& group : options.groups) {
    const uint64_t cells =
        group.attention == Attention::recurrent
            ? group.capacity_blocks
            : uint64_t{group.capacity_blocks} * (group.block_tokens / cell_tokens);
    if (cells > kMaxCells) {
      return Error(Errc::invalid_argument, "capacity_blocks is beyond what an index can number",
                   group.capacity_blocks);
    }
  }
  if (options.index_cells > kMaxCells) {
    return Error(Errc::invalid_argument, "index_cells is beyond what an index can number",
                 options.index_cells);
  }
  if (std::isnan(options.pin_share) || options.pin_share < 0.0 || options.pin_share > 1.0) {
    return Error(Errc::invalid_argument, "pin_share must lie between 0 and 1");
  }
  if (options.stats_window_ns == 0) {
    return Error(Errc::invalid_argument, "stats_window_ns must be at least 1");
  }
  if (options.event_capacity > 1U << 24U) {
    return Error(Errc::invalid_argument, "event_capacity is too large", options.event_capacity);
  }
  return {};
}

Result<void> check_quotas(const Options& options) {
  const auto& quotas = options.quotas;
  if (quotas.size() > retain::LruPolicy::kMaxTenants) {
    return Error(Errc::invalid_argument, "too many quotas; at most 64 tenants can have one",
                 static_cast<uint32_t>(quotas.size()));
  }
  for (size_t i = 0; i < quotas.size(); ++i) {
    if (quotas[i].tenant == kNoTenant) {
      return Error(Errc::invalid_argument, "tenant 0 is nobody in particular and has no quota");
    }
    for (size_t j = 0; j < i; ++j) {
      if (quotas[i].tenant != quotas[j].tenant) continue;
      return Error(Errc::invalid_argument, "two quotas for one tenant",
                   static_cast<uint32_t>(quotas[i].tenant));
    }
  }
  const bool no_bytes = std::all_of(options.groups.begin(), options.groups.end(),
                                    [](const GroupOptions& g) { return g.block_bytes == 0; });
  if (quotas.empty() || !no_bytes) return {};
  return Error(Errc::invalid_argument, "quotas are in bytes, and no group has block_bytes");
}

}  // namespace

Result<Options> check_options(const Options& given) {
  Options options = given;
  if (options.groups.empty()) return Error(Errc::invalid_argument, "at least one group is needed");
  if (options.groups.size() > kMaxGroups) {
    return Error(Errc::invalid_argument, "more groups than kMaxGroups",
                 static_cast<uint32_t>(options.groups.size()));
  }
  uint32_t cell_tokens = 0;
  GroupOptions* open = nullptr;
  for (uint32_t g = 0; g < options.groups.size(); ++g) {
    GroupOptions& group = options.groups[g];
    STEMMA_TRY_VOID(check_group(group, g));
    if (group.attention != Attention::recurrent) {
      cell_tokens =
          cell_tokens == 0 ? group.block_tokens : std::min(cell_tokens, group.block_tokens);
    }
    if (group.capacity_blocks != 0) continue;
    if (options.budget_bytes == 0 || open != nullptr || group.block_bytes == 0) {
      return Error(Errc::invalid_argument,
                   "capacity_blocks is 0 (one group may leave it to budget_bytes, if it has "
                   "block_bytes)",
                   g);
    }
    open = &group;
  }
  if (cell_tokens == 0) cell_tokens = 16;
  if (options.budget_bytes != 0) STEMMA_TRY_VOID(spend_budget(options, open, cell_tokens));
  STEMMA_TRY_VOID(check_sizes(options, cell_tokens));
  STEMMA_TRY_VOID(check_quotas(options));
  if (!knows_policy(options.policy)) {
    return Error(Errc::invalid_argument, "unknown retention policy");
  }
  return options;
}

Result<void> check_retain(const Retain& retain) {
  if (retain.priority > kMaxPriority) {
    return Error(Errc::invalid_argument, "priority is more than 100", retain.priority);
  }
  if (static_cast<uint8_t>(retain.phase) > static_cast<uint8_t>(SessionPhase::active)) {
    return Error(Errc::invalid_argument, "unknown session phase");
  }
  if (static_cast<uint8_t>(retain.finish) > static_cast<uint8_t>(FinishReason::cancelled)) {
    return Error(Errc::invalid_argument, "unknown finish reason",
                 static_cast<uint8_t>(retain.finish));
  }
  if (retain.ranges.size() > kMaxPriorityRanges) {
    return Error(Errc::invalid_argument, "more than 64 priority ranges", kMaxPriorityRanges);
  }
  uint32_t last = 0;
  for (uint32_t i = 0; i < retain.ranges.size(); ++i) {
    const PriorityRange& range = retain.ranges[i];
    if (range.priority > kMaxPriority) {
      return Error(Errc::invalid_argument, "priority of this range is more than 100", i);
    }
    if (range.begin >= range.end) return Error(Errc::invalid_argument, "this range is empty", i);
    if (i != 0 && range.begin < last) {
      return Error(Errc::invalid_argument, "this range overlaps the one before, or is out of order",
                   i);
    }
    last = range.end;
  }
  return {};
}

}  // namespace stemma::cache
