// The block tables of a lease, as kernels read them.
//
// Threading:  a lease is used by one thread at a time. No lock: they read only the lease's own
//             lists, and Books for its shape.
// Cost:       O(entries), no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "cache/books/books.h"
#include "cache/lease/lease_record.h"

namespace stemma::cache {

// Lease's calls of the same names.
uint32_t block_count(const Books& books, const LeaseRecord& lease, GroupIndex g) noexcept;
Result<uint32_t> block_table(const Books& books, const LeaseRecord& lease, GroupIndex g,
                             std::span<BlockId> out, BlockId pad);
Result<uint32_t> draft_table(const Books& books, const LeaseRecord& lease, GroupIndex g,
                             std::span<BlockId> out, BlockId pad);
Result<void> slot_mapping(const Books& books, const LeaseRecord& lease, GroupIndex g,
                          uint32_t begin, std::span<int64_t> out, int64_t pad);

}  // namespace stemma::cache
