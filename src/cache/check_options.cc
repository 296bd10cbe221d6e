// What callers may ask for: options of caches and of retention.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cache/shared.h"
#include "retain/lru.h"

namespace stemma::cache {
namespace {

constexpr uint32_t kMaxBlockTokens = 1024;
// Cells have 28-bit numbers, and a cache needs up to twice as many cells as blocks.
constexpr uint64_t kMaxCells = 1U << 27U;

uint64_t index_bytes_per_cell(const Options& options, uint32_t cell_tokens) {
  uint64_t bytes = 4 * uint64_t{cell_tokens} + 44;  // Tree 32, policy 8, books 4.
  for (size_t g = 1; g < options.groups.size(); ++g) bytes += 4;
  return options.content_keys || options.event_capacity != 0 ? bytes + 32 : bytes;
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
    return Error(Errc::invalid_argument, "a window group needs window_tokens of at least 1", index);
  }
  if (!window && (group.window_tokens != 0 || group.sink_tokens != 0)) {
    return Error(Errc::invalid_argument, "window_tokens and sink_tokens are for window groups", index);
  }
  if (group.sink_tokens > key::kMaxPromptPositions) {
    return Error(Errc::invalid_argument, "sink_tokens is too large", index);
  }
  return {};
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
      cell_tokens = cell_tokens == 0 ? group.block_tokens : std::min(cell_tokens, group.block_tokens);
    }
    if (group.capacity_blocks == 0) {
      if (options.budget_bytes == 0 || open != nullptr || group.block_bytes == 0) {
        return Error(Errc::invalid_argument,
                     "capacity_blocks is 0 (one group may leave it to budget_bytes, if it has "
                     "block_bytes)",
                     g);
      }
      open = &group;
    }
  }
  if (cell_tokens == 0) cell_tokens = 16;

  if (options.budget_bytes != 0) {
    const uint64_t per_cell = index_bytes_per_cell(options, cell_tokens);
    // Whole numbers of bytes in 128 bits: absurd sizes must not wrap around.
    unsigned __int128 used = options.logits_bytes;
    for (const GroupOptions& group : options.groups) {
      const uint64_t cells =
          group.attention == Attention::recurrent ? 0 : group.block_tokens / cell_tokens;
      const auto one = static_cast<unsigned __int128>(group.block_bytes) +
                       (&group == &options.groups.front() ? cells * per_cell : 8);
      if (&group != open) used += one * group.capacity_blocks;
    }
    if (used > options.budget_bytes) {
      return Error(Errc::invalid_argument, "budget_bytes does not hold what the groups ask for");
    }
    if (open != nullptr) {
      const uint64_t cells =
          open->attention == Attention::recurrent ? 0 : open->block_tokens / cell_tokens;
      const auto one = static_cast<unsigned __int128>(open->block_bytes) +
                       (open == &options.groups.front() ? cells * per_cell : 8);
      const auto blocks = (options.budget_bytes - used) / one;
      if (blocks == 0) return Error(Errc::invalid_argument, "budget_bytes holds not one block");
      open->capacity_blocks = static_cast<uint32_t>(
          std::min<unsigned __int128>(blocks, kMaxCells * cell_tokens / open->block_tokens));
    }
  }
  for (uint32_t g = 0; g < options.groups.size(); ++g) {
    const GroupOptions& group = options.groups[g];
    const uint64_t cells = group.attention == Attention::recurrent
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
  if (!(options.pin_share >= 0.0 && options.pin_share <= 1.0)) {
    return Error(Errc::invalid_argument, "pin_share must lie between 0 and 1");
  }
  if (options.quotas.size() > retain::LruPolicy::kMaxTenants) {
    return Error(Errc::invalid_argument, "too many quotas; at most 64 tenants can have one",
                 static_cast<uint32_t>(options.quotas.size()));
  }
  for (size_t i = 0; i < options.quotas.size(); ++i) {
    if (options.quotas[i].tenant == kNoTenant) {
      return Error(Errc::invalid_argument, "tenant 0 is nobody in particular and has no quota");
    }
    for (size_t j = 0; j < i; ++j) {
      if (options.quotas[i].tenant == options.quotas[j].tenant) {
        return Error(Errc::invalid_argument, "two quotas for one tenant",
                     static_cast<uint32_t>(options.quotas[i].tenant));
      }
    }
  }
  const bool no_bytes = std::all_of(options.groups.begin(), options.groups.end(),
                                    [](const GroupOptions& g) { return g.block_bytes == 0; });
  if (!options.quotas.empty() && no_bytes) {
    return Error(Errc::invalid_argument, "quotas are in bytes, and no group has block_bytes");
  }
  if (options.stats_window_ns == 0) {
    return Error(Errc::invalid_argument, "stats_window_ns must be at least 1");
  }
  if (options.event_capacity > 1U << 24U) {
    return Error(Errc::invalid_argument, "event_capacity is too large", options.event_capacity);
  }
  if (make_policy(options.policy, 1) == nullptr) {
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
  uint32_t last = 0;
  for (uint32_t i = 0; i < retain.ranges.size(); ++i) {
    const PriorityRange& range = retain.ranges[i];
    if (range.priority > kMaxPriority) {
      return Error(Errc::invalid_argument, "priority of this range is more than 100", i);
    }
    if (range.begin >= range.end) return Error(Errc::invalid_argument, "this range is empty", i);
    if (i != 0 && range.begin < last) {
      return Error(Errc::invalid_argument, "this range overlaps the one before, or is out of order", i);
    }
    last = range.end;
  }
  return {};
}

void set_retain(LeaseRecord& lease, const Retain& retain) {
  lease.ranges.assign(retain.ranges.begin(), retain.ranges.end());
  lease.retain = retain;
  lease.retain.ranges = {};
}

}  // namespace stemma::cache
