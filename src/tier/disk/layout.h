// How a disk tier's directory lies on disk: its files, chunks, slots and classes of slots.
// docs/formats/disk-tier.md draws every byte.
//
// The slab file is a row of equal chunks. A chunk's first page says how it is divided: into slots of one
// class, each of which holds one entry. A slot's class is its number of pages behind the first, and
// classes are at most an eighth apart.
// Threading: pure functions. Nothing here trusts a byte.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "stemma/result.h"
#include "tier/disk/files.h"
#include "tier/entry.h"

namespace stemma::tier::disk {

inline constexpr uint32_t kDiskVersion = 1;
inline constexpr uint32_t kFormatBytes = 64;
inline constexpr const char* kLockName = "lock";
inline constexpr const char* kFormatName = "format";
inline constexpr const char* kFormatNewName = "format.new";
inline constexpr const char* kSlabName = "entries.slab";

inline constexpr uint64_t kLeastChunkBytes = 16 * uint64_t{kPage};
inline constexpr uint64_t kMostChunkBytes = uint64_t{1} << 41U;

// What the file `format` says.
struct DiskFormat {
  uint64_t chunk_bytes = 0;
  friend bool operator==(const DiskFormat&, const DiskFormat&) = default;
};
void write_format(const DiskFormat& format, std::span<uint8_t, kFormatBytes> out) noexcept;
// Error: unsupported (another version; the value says which), corrupt.
Result<DiskFormat> read_format(std::span<const uint8_t> bytes) noexcept;

// What the first page of a chunk says. An unused one is all zeros.
struct ChunkHeader {
  uint32_t chunk = 0;
  uint32_t slot_pages = 0;
  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};
void write_chunk(const ChunkHeader& header, std::span<uint8_t, kPage> out) noexcept;
// Error: corrupt; unsupported when the chunk was never used (all zeros).
Result<ChunkHeader> read_chunk(std::span<const uint8_t, kPage> bytes) noexcept;

inline uint64_t pages_for(uint64_t bytes) noexcept { return (bytes + kPage - 1) / kPage; }

// Where the parts of an entry lie in its slot. `inlined`: header, words and payload in one page.
// Otherwise the words lie behind the header, and the payload begins at the next page.
struct EntryShape {
  bool inlined = false;
  uint64_t payload_at = 0;
  uint64_t pages = 0;  // All of it.
};
inline EntryShape shape_of(const EntryInfo& info) noexcept {
  const uint64_t front = kHeaderBytes + uint64_t{info.words} * 4;
  if (front + info.bytes <= kPage) return {.inlined = true, .payload_at = front, .pages = 1};
  const uint64_t at = pages_for(front) * kPage;
  return {.inlined = false, .payload_at = at, .pages = at / kPage + pages_for(info.bytes)};
}

// The smallest slot for so many pages: one page, or one and a number of at most four binary digits
// before its zeros. Powers of two behind a header page fit exactly.
inline uint64_t slot_pages_for(uint64_t pages) noexcept {
  const uint64_t behind = pages - 1;
  if (behind <= 8) return pages;
  const auto step = uint64_t{1} << static_cast<uint32_t>(std::bit_width(behind - 1) - 4);
  return 1 + (behind + step - 1) / step * step;
}
inline uint64_t slots_in(uint64_t chunk_bytes, uint64_t slot_pages) noexcept {
  return (chunk_bytes / kPage - 1) / slot_pages;
}
inline uint64_t slot_offset(uint64_t chunk_bytes, uint32_t chunk, uint32_t slot,
                            uint64_t slot_pages) noexcept {
  return chunk * chunk_bytes + (1 + slot * slot_pages) * kPage;
}

// The largest payload without words that a chunk can hold.
inline uint64_t most_payload_bytes(uint64_t chunk_bytes) noexcept {
  uint64_t pages = chunk_bytes / kPage - 1;  // All but the chunk's own page; one is the header's.
  while (pages > 1 && slot_pages_for(pages) > chunk_bytes / kPage - 1) --pages;
  return pages == 1 ? kPage - kHeaderBytes : (pages - 1) * kPage;
}

// The chunk size for a new store: eight of the largest entries, less where the capacity is small.
// 0: the capacity is too small for one.
uint64_t choose_chunk_bytes(uint64_t capacity_bytes, uint64_t max_entry_bytes) noexcept;

}  // namespace stemma::tier::disk
