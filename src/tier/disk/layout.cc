#include "tier/disk/layout.h"

#include <array>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "key/little_endian.h"

namespace stemma::tier::disk {

namespace {

constexpr char kFormatMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'D', 'K'};
constexpr char kChunkMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'C', 'H'};
constexpr uint32_t kFormatSummed = kFormatBytes - 8;
constexpr uint32_t kChunkSummed = 56;  // The rest of its page is zero.

template <class Unsigned>
Unsigned load(const uint8_t* from) noexcept {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Unsigned>(static_cast<Unsigned>(from[i]) << (8 * i));
  }
  return value;
}

}  // namespace

void write_format(const DiskFormat& format, std::span<uint8_t, kFormatBytes> out) noexcept {
  std::memset(out.data(), 0, out.size());
  uint8_t* to = key::put_bytes(out.data(), kFormatMagic, sizeof kFormatMagic);
  to = key::put_le(to, kDiskVersion);
  to = key::put_le(to, kPage);
  key::put_le(to, format.chunk_bytes);
  key::put_le(out.data() + kFormatSummed, uint64_t{XXH3_64bits(out.data(), kFormatSummed)});
}

Result<DiskFormat> read_format(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < 12 || std::memcmp(bytes.data(), kFormatMagic, sizeof kFormatMagic) != 0) {
    return Error(Errc::corrupt, "the file 'format' is not one of a Stemma disk tier");
  }
  // Newer versions keep the first twelve bytes and may change everything behind.
  if (const auto version = load<uint32_t>(bytes.data() + 8); version > kDiskVersion) {
    return Error(Errc::unsupported, "the directory was written by a newer version of the format",
                 version);
  }
  if (bytes.size() != kFormatBytes ||
      load<uint64_t>(bytes.data() + kFormatSummed) != XXH3_64bits(bytes.data(), kFormatSummed)) {
    return Error(Errc::corrupt, "the file 'format' is damaged");
  }
  const DiskFormat format = {.chunk_bytes = load<uint64_t>(bytes.data() + 16)};
  std::array<uint8_t, kFormatBytes> again;
  write_format(format, again);
  if (std::memcmp(again.data(), bytes.data(), again.size()) != 0 ||
      format.chunk_bytes % kPage != 0 || format.chunk_bytes < kLeastChunkBytes ||
      format.chunk_bytes > kMostChunkBytes) {
    return Error(Errc::corrupt, "the file 'format' says what cannot be");
  }
  return format;
}

void write_chunk(const ChunkHeader& header, std::span<uint8_t, kPage> out) noexcept {
  std::memset(out.data(), 0, out.size());
  uint8_t* to = key::put_bytes(out.data(), kChunkMagic, sizeof kChunkMagic);
  to = key::put_le(to, header.chunk);
  key::put_le(to, header.slot_pages);
  key::put_le(out.data() + kChunkSummed, uint64_t{XXH3_64bits(out.data(), kChunkSummed)});
}

Result<ChunkHeader> read_chunk(std::span<const uint8_t, kPage> bytes) noexcept {
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; })) {
    return Error(Errc::unsupported, "the chunk is not in use");
  }
  const ChunkHeader header = {.chunk = load<uint32_t>(bytes.data() + 8),
                              .slot_pages = load<uint32_t>(bytes.data() + 12)};
  std::array<uint8_t, kPage> again;
  write_chunk(header, again);
  if (std::memcmp(again.data(), bytes.data(), again.size()) != 0 || header.slot_pages == 0) {
    return Error(Errc::corrupt, "the chunk's first page is damaged");
  }
  return header;
}

uint64_t choose_chunk_bytes(uint64_t capacity_bytes, uint64_t max_entry_bytes) noexcept {
  const uint64_t pages = slot_pages_for(1 + pages_for(std::max<uint64_t>(max_entry_bytes, 1)));
  const uint64_t least = std::max((1 + pages) * kPage, kLeastChunkBytes);
  if (capacity_bytes < least || least > kMostChunkBytes) return 0;
  const uint64_t wanted = (8 * pages + 1) * kPage;
  const uint64_t affordable = capacity_bytes / 16 / kPage * kPage;
  return std::clamp(std::min(wanted, affordable), least, kMostChunkBytes);
}

}  // namespace stemma::tier::disk
