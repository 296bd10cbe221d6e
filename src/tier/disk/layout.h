// The layout of a disk tier's directory: its files, its table of entries and their pages.
// docs/formats/disk-tier.md draws every byte.
//
// The slab file is a row of pages. The table file is a row of records; a record describes one entry
// and names the runs of pages (extents) that its body lies in. A body is the payload, then the
// words. Threading: pure functions. Nothing here trusts a byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "stemma/result.h"
#include "tier/entry.h"
#include "tier/files.h"

namespace stemma::tier::disk {

inline constexpr uint32_t kDiskVersion = 3;
inline constexpr uint32_t kFormatBytes = 64;
inline constexpr const char* kLockName = "lock";
inline constexpr const char* kFormatName = "format";
inline constexpr const char* kFormatNewName = "format.new";
inline constexpr const char* kSlabName = "entries.slab";
inline constexpr const char* kTableName = "entries.table";
inline constexpr const char* kUsesName = "entries.uses";

inline constexpr uint32_t kRecordBytes = 256;
inline constexpr uint32_t kRecordsInPage = kPage / kRecordBytes;
inline constexpr uint32_t kMostExtents = 12;
inline constexpr uint32_t kUsesInPage = kPage / 8 - 1;
inline constexpr uint64_t kMostPages = uint64_t{1} << 32U;

// The file `format` holds only the version so far.
void write_format(std::span<uint8_t, kFormatBytes> out) noexcept;
// Error: unsupported (another version; the value says which), corrupt.
Result<void> read_format(std::span<const uint8_t> bytes) noexcept;

struct Extent {
  uint32_t first = 0;
  uint32_t pages = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A record of the table. A free one is all zeros.
struct TableRecord {
  enum class Kind : uint8_t {
    entry,
    retired,  // Its extents could not be read or written and must not be used; of the header only
              // the serial counts.
  };
  Kind kind = Kind::entry;
  Priority priority = kDefaultPriority;
  uint32_t extent_count = 0;
  EntryHeader header;
  uint64_t used = 0;  // The stamp of its put's batch.
  std::array<Extent, kMostExtents> extents = {};

  std::span<const Extent> places() const noexcept { return std::span(extents).first(extent_count); }
  friend bool operator==(const TableRecord&, const TableRecord&) = default;
};
void write_record(const TableRecord& record, std::span<uint8_t, kRecordBytes> out) noexcept;
// Error: stale (it is free), corrupt (anything that write_record() would not have written).
Result<TableRecord> read_record(std::span<const uint8_t, kRecordBytes> bytes) noexcept;

// A page of `entries.uses`: the stamps of the last use of kUsesInPage records.
using Uses = std::array<uint64_t, kUsesInPage>;
void write_uses(const Uses& uses, std::span<uint8_t, kPage> out) noexcept;
// False: damaged, or never written.
bool read_uses(std::span<const uint8_t, kPage> bytes, Uses& out) noexcept;

inline uint64_t pages_for(uint64_t bytes) noexcept { return (bytes + kPage - 1) / kPage; }

// A body: the payload, then the words at the next multiple of four.
inline uint64_t words_at(const EntryInfo& info) noexcept { return (info.bytes + 3) / 4 * 4; }
inline uint64_t body_bytes(const EntryInfo& info) noexcept {
  return info.words == 0 ? info.bytes : words_at(info) + uint64_t{info.words} * 4;
}
inline uint64_t pages_of(const EntryInfo& info) noexcept { return pages_for(body_bytes(info)); }

}  // namespace stemma::tier::disk
