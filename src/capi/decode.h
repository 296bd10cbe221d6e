// Converts what C callers pass to what the C++ API takes. It checks everything that the C++ types
// cannot even hold: null with a length, flags other than 0 and 1, undefined enumerators, numbers
// that would lose bits.
//
// Threading:  pure functions, except that ranges are put into memory of the calling thread.
// Ownership:  results borrow from the arguments and from that memory; use them at once, in one
// call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "capi/sized.h"
#include "stemma/cache.h"
#include "stemma/stemma.h"

namespace stemma::capi {

STEMMA_SIZED(stemma_scope_spec, STEMMA_SCOPE_SPEC_INIT);
STEMMA_SIZED(stemma_block_io, STEMMA_BLOCK_IO_INIT);
STEMMA_SIZED(stemma_group_options, STEMMA_GROUP_OPTIONS_INIT);
STEMMA_SIZED(stemma_options, STEMMA_OPTIONS_INIT);
STEMMA_SIZED(stemma_lookup_options, STEMMA_LOOKUP_OPTIONS_INIT);
STEMMA_SIZED(stemma_retain, STEMMA_RETAIN_INIT);
STEMMA_SIZED(stemma_lease_options, STEMMA_LEASE_OPTIONS_INIT);
STEMMA_SIZED(stemma_release_options, STEMMA_RELEASE_OPTIONS_INIT);
STEMMA_SIZED(stemma_report, STEMMA_REPORT_INIT);
STEMMA_SIZED_GROWN(stemma_stats, evictable_blocks, {});

Result<Scope> decode(const stemma_scope_spec* spec);
Result<Scope> decode(const stemma_scope* scope) noexcept;
// Room for a prompt's media items while a call runs; a few need no memory.
class MediaRoom {
 public:
  MediaItem* take(size_t count) {
    if (count <= kFew) return new (few_) MediaItem[kFew];
    many_.resize(count);
    return many_.data();
  }

 private:
  // Most prompts have no media: nothing is made before take(), and nothing need be destroyed.
  static constexpr size_t kFew = 16;
  static_assert(std::is_trivially_destructible_v<MediaItem>);
  alignas(MediaItem) std::byte few_[kFew * sizeof(MediaItem)];
  std::vector<MediaItem> many_;
};
Result<Prompt> decode(const stemma_prompt* prompt, MediaRoom& room);
// For null options these leave `out` as it is: it already has the defaults.
Result<void> decode(const stemma_lookup_options* options, LookupOptions& out) noexcept;
Result<void> decode(const stemma_retain* retain, Retain& out);
Result<void> decode(const stemma_lease_options* options, LeaseOptions& out);
Result<std::vector<TenantQuota>> decode_quotas(const stemma_tenant_quota* quotas, size_t count);
// At least one. Elements may be larger or smaller than ours.
Result<std::vector<GroupOptions>> decode_groups(const stemma_group_options* groups, size_t count);
// Leaves out clock and block_io, which are objects here; refuses null.
Result<Options> decode(const stemma_options* options);
Result<OnBusy> decode_on_busy(uint32_t on_busy) noexcept;
Result<void> check_fence(const stemma_fence* fence) noexcept;
// Lengths beyond it are mistakes; they are refused before anything of that length is read.
inline constexpr size_t kMaxBytes = 0x7FFF'FFFFU;

// Fills (out, capacity, count) as stemma.h says under Buffers.
template <class T, class U, class Convert = std::identity>
Result<void> fill(std::span<const T> all, U* out, size_t capacity, size_t* count,
                  Convert convert = {}) noexcept {
  if (count == nullptr) return Error(Errc::invalid_argument, "count is null");
  if (out == nullptr && capacity != 0) {
    return Error(Errc::invalid_argument, "out is null, and capacity is not 0");
  }
  *count = all.size();
  if (capacity == 0) return {};
  if (capacity < all.size()) {
    return Error(Errc::out_of_range, "out needs room for more elements, this many in all",
                 static_cast<uint32_t>(all.size()));
  }
  std::transform(all.begin(), all.end(), out, convert);
  return {};
}

void encode(const Report& report, stemma_report* out) noexcept;
void encode(const Stats& stats, stemma_stats* out) noexcept;

}  // namespace stemma::capi
