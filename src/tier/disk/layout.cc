#include "tier/disk/layout.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "key/little_endian.h"

namespace stemma::tier::disk {

namespace {

constexpr char kFormatMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'D', 'K'};
constexpr char kRetiredMagic[8] = {'S', 'T', 'E', 'M', 'M', 'A', 'B', 'D'};
constexpr uint32_t kFormatSummed = kFormatBytes - 8;
constexpr uint32_t kRecordSummed = kRecordBytes - 8;
constexpr uint32_t kSerialAt = 96;  // As in an entry's header.
constexpr uint32_t kExtentsAt = kHeaderBytes + 16;

template <class Unsigned>
Unsigned load(const uint8_t* from) noexcept {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<Unsigned>(static_cast<Unsigned>(from[i]) << (8 * i));
  }
  return value;
}

bool all_zero(std::span<const uint8_t> bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// Whether the extents lie where pages can be and no page is named twice.
bool possible(const TableRecord& record) noexcept {
  uint64_t pages = 0;
  for (const Extent& one : record.places()) {
    if (one.pages == 0 || uint64_t{one.first} + one.pages > kMostPages) return false;
    for (const Extent& other : record.places()) {
      if (&other != &one && other.first >= one.first && other.first - one.first < one.pages) {
        return false;
      }
    }
    pages += one.pages;
  }
  if (record.kind == TableRecord::Kind::retired) return pages != 0;
  return record.priority <= kMaxPriority && pages == pages_of(record.header.info);
}

}  // namespace

void write_format(std::span<uint8_t, kFormatBytes> out) noexcept {
  std::memset(out.data(), 0, out.size());
  uint8_t* to = key::put_bytes(out.data(), kFormatMagic, sizeof kFormatMagic);
  to = key::put_le(to, kDiskVersion);
  to = key::put_le(to, kPage);
  key::put_le(to, kRecordBytes);
  key::put_le(out.data() + kFormatSummed, uint64_t{XXH3_64bits(out.data(), kFormatSummed)});
}

Result<void> read_format(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < 12 || std::memcmp(bytes.data(), kFormatMagic, sizeof kFormatMagic) != 0) {
    return Error(Errc::corrupt, "the file 'format' is not one of a Stemma disk tier");
  }
  // Other versions keep the first twelve bytes and may change everything after them.
  if (const auto version = load<uint32_t>(bytes.data() + 8); version != kDiskVersion) {
    return Error(Errc::unsupported, "the directory was written by another version of the format",
                 version);
  }
  std::array<uint8_t, kFormatBytes> again;
  write_format(again);
  if (bytes.size() != kFormatBytes || std::memcmp(again.data(), bytes.data(), again.size()) != 0) {
    return Error(Errc::corrupt, "the file 'format' is damaged");
  }
  return {};
}

void write_record(const TableRecord& record, std::span<uint8_t, kRecordBytes> out) noexcept {
  std::memset(out.data(), 0, out.size());
  if (record.kind == TableRecord::Kind::entry) {
    write_header(record.header, out.first<kHeaderBytes>());
  } else {
    key::put_bytes(out.data(), kRetiredMagic, sizeof kRetiredMagic);
    key::put_le(out.data() + kSerialAt, record.header.serial);
  }
  out[kHeaderBytes] = record.priority;
  out[kHeaderBytes + 1] = static_cast<uint8_t>(record.extent_count);
  key::put_le(out.data() + kHeaderBytes + 8, record.used);
  uint8_t* to = out.data() + kExtentsAt;
  for (const Extent& one : record.places()) to = key::put_le(key::put_le(to, one.first), one.pages);
  key::put_le(out.data() + kRecordSummed, uint64_t{XXH3_64bits(out.data(), kRecordSummed)});
}

Result<TableRecord> read_record(std::span<const uint8_t, kRecordBytes> bytes) noexcept {
  const uint8_t* from = bytes.data();
  if (load<uint64_t>(from) == 0 && all_zero(bytes)) {
    return Error(Errc::stale, "the record is free");
  }
  if (load<uint64_t>(from + kRecordSummed) != XXH3_64bits(from, kRecordSummed)) {
    return Error(Errc::corrupt, "the record's checksum does not hold");
  }
  TableRecord record;
  if (std::memcmp(from, kRetiredMagic, sizeof kRetiredMagic) == 0) {
    record.kind = TableRecord::Kind::retired;
    record.header.serial = load<uint64_t>(from + kSerialAt);
  } else {
    const auto header = read_header(bytes.first<kHeaderBytes>());
    if (!header) return Error(Errc::corrupt, "the record's header does not hold");
    record.header = *header;
  }
  record.priority = from[kHeaderBytes];
  record.extent_count = from[kHeaderBytes + 1];
  record.used = load<uint64_t>(from + kHeaderBytes + 8);
  if (record.extent_count > kMostExtents) return Error(Errc::corrupt, "too many extents");
  for (uint32_t i = 0; i < record.extent_count; ++i) {
    const uint8_t* at = from + kExtentsAt + size_t{i} * 8;
    record.extents[i] = {.first = load<uint32_t>(at), .pages = load<uint32_t>(at + 4)};
  }
  // Unused bytes are zero, so every record has exactly one encoding.
  std::array<uint8_t, kRecordBytes> again;
  write_record(record, again);
  if (!possible(record) || std::memcmp(again.data(), from, again.size()) != 0) {
    return Error(Errc::corrupt, "the record says what cannot be");
  }
  return record;
}

void write_uses(const Uses& uses, std::span<uint8_t, kPage> out) noexcept {
  uint8_t* to = out.data();
  for (const uint64_t stamp : uses) to = key::put_le(to, stamp);
  key::put_le(to, uint64_t{XXH3_64bits(out.data(), kPage - 8)});
}

bool read_uses(std::span<const uint8_t, kPage> bytes, Uses& out) noexcept {
  if (load<uint64_t>(bytes.data() + kPage - 8) != XXH3_64bits(bytes.data(), kPage - 8)) {
    return false;
  }
  for (uint32_t i = 0; i < kUsesInPage; ++i) {
    out[i] = load<uint64_t>(bytes.data() + size_t{i} * 8);
  }
  return true;
}

}  // namespace stemma::tier::disk
