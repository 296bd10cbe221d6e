#include "tier/disk/layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace stemma::tier::disk {
namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace

// docs/formats/disk-tier.md: offsets and values. The sums are XXH3's, as tier-entry.md has them.
TEST(DiskLayout, EveryByteIsWhereTheDocumentSays) {
  std::array<uint8_t, kFormatBytes> format;
  write_format({.chunk_bytes = 0x0403'2000}, format);
  EXPECT_EQ(hex(std::span(format).first(24)),
            "5354454d4d41444b"  // STEMMADK
            "01000000"          // version
            "00100000"          // bytes of a page
            "0020030400000000"  // bytes of a chunk
  );
  EXPECT_EQ(hex(std::span(format).subspan(24, 32)), std::string(64, '0'));

  std::array<uint8_t, kPage> chunk;
  write_chunk({.chunk = 7, .slot_pages = 513}, chunk);
  EXPECT_EQ(hex(std::span(chunk).first(16)),
            "5354454d4d414348"  // STEMMACH
            "07000000"          // its number
            "01020000"          // pages of a slot
  );
  EXPECT_EQ(hex(std::span(chunk).subspan(16, 40)), std::string(80, '0'));
  EXPECT_EQ(hex(std::span(chunk).subspan(64)), std::string(2 * (kPage - 64), '0'));
}

TEST(DiskLayout, AFlippedBitIsNoticed) {
  std::array<uint8_t, kFormatBytes> format;
  write_format({.chunk_bytes = uint64_t{64} << 20U}, format);
  ASSERT_TRUE(read_format(format));
  for (size_t bit = 0; bit < kFormatBytes * 8; ++bit) {
    auto bad = format;
    bad[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_FALSE(read_format(bad)) << bit;
  }
  std::array<uint8_t, kPage> chunk;
  write_chunk({.chunk = 3, .slot_pages = 17}, chunk);
  ASSERT_EQ(*read_chunk(chunk), (ChunkHeader{.chunk = 3, .slot_pages = 17}));
  for (size_t bit = 0; bit < kPage * 8; bit += bit < 1024 ? 1 : 97) {
    auto bad = chunk;
    bad[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    const auto read = read_chunk(bad);
    EXPECT_TRUE(!read && read.error().code() == Errc::corrupt) << bit;
  }
}

TEST(DiskLayout, NewerVersionsAndForeignFilesAreToldApart) {
  std::array<uint8_t, kFormatBytes> format;
  write_format({.chunk_bytes = uint64_t{64} << 20U}, format);
  auto newer = format;
  newer[8] = 9;
  const auto told = read_format(newer);
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code(), Errc::unsupported);
  EXPECT_EQ(told.error().value(), 9U);
  EXPECT_EQ(read_format(std::span(format).first(63)).error().code(), Errc::corrupt);
  EXPECT_EQ(read_format({}).error().code(), Errc::corrupt);
  write_format({.chunk_bytes = 12345}, format);
  EXPECT_EQ(read_format(format).error().code(), Errc::corrupt);
  const std::array<uint8_t, kPage> zeros = {};
  EXPECT_EQ(read_chunk(zeros).error().code(), Errc::unsupported);
}

TEST(DiskLayout, AnEighthAtMostIsWasted) {
  for (uint64_t pages = 1; pages < 70'000; ++pages) {
    const uint64_t slot = slot_pages_for(pages);
    ASSERT_GE(slot, pages);
    ASSERT_LE((slot - pages) * 8, slot) << pages;
    ASSERT_EQ(slot_pages_for(slot), slot) << pages;
  }
  // What caches store most has a class of its own.
  EXPECT_EQ(slot_pages_for(1 + 512), 513U);
  EXPECT_EQ(slot_pages_for(1 + 16), 17U);
}

TEST(DiskLayout, SmallEntriesShareTheHeadersPage) {
  const auto shape = [](uint64_t bytes, uint32_t words) {
    return shape_of({.begin = 0, .end = words, .layout = 0, .bytes = bytes, .words = words});
  };
  EXPECT_TRUE(shape(kPage - kHeaderBytes, 0).inlined);
  EXPECT_EQ(shape(kPage - kHeaderBytes, 0).payload_at, kHeaderBytes);
  EXPECT_FALSE(shape(kPage - kHeaderBytes + 1, 0).inlined);
  EXPECT_EQ(shape(kPage - kHeaderBytes + 1, 0).pages, 2U);
  EXPECT_EQ(shape(100, 10).payload_at, kHeaderBytes + 40);
  EXPECT_EQ(shape(2U << 20U, 0).pages, 513U);
  EXPECT_EQ(shape(2U << 20U, 992).pages, 513U);
  EXPECT_EQ(shape(2U << 20U, 993).pages, 514U);
}

TEST(DiskLayout, ChunksAreMadeForTheLargestEntryAndTheCapacity) {
  constexpr uint64_t kMiB = uint64_t{1} << 20U;
  const uint64_t chunk = choose_chunk_bytes(20'000 * kMiB, 8 * kMiB);
  EXPECT_GE(slots_in(chunk, slot_pages_for(1 + pages_for(8 * kMiB))), 8U);
  EXPECT_LE(chunk, 65 * kMiB);
  const uint64_t small = choose_chunk_bytes(64 * kMiB, 2 * kMiB);
  EXPECT_GE(64 * kMiB / small, 15U);
  EXPECT_GE(most_payload_bytes(small), 2 * kMiB);
  EXPECT_EQ(choose_chunk_bytes(kMiB, 2 * kMiB), 0U);
  EXPECT_EQ(choose_chunk_bytes(0, 1), 0U);
}

}  // namespace stemma::tier::disk
