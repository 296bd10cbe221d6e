#include "tier/disk/layout.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

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

TableRecord some_record() {
  TableRecord record;
  record.header.key.chain.bytes[3] = 7;
  record.header.info = {.begin = 0, .end = 64, .layout = 5, .bytes = 5 * kPage, .words = 0};
  record.header.sum = 99;
  record.header.serial = 0x1234;
  record.priority = 3;
  record.used = 0x0605;
  record.extents[0] = {.first = 0x0A0B, .pages = 4};
  record.extents[1] = {.first = 2, .pages = 1};
  record.extent_count = 2;
  return record;
}

using RecordBytes = std::array<uint8_t, kRecordBytes>;
RecordBytes bytes_of(const TableRecord& record) {
  RecordBytes bytes;
  write_record(record, bytes);
  return bytes;
}

}  // namespace

// docs/formats/disk-tier.md: offsets and values. Sums are XXH3, as in tier-entry.md.
TEST(DiskLayout, EveryByteIsWhereTheDocumentSays) {
  std::array<uint8_t, kFormatBytes> format;
  write_format(format);
  EXPECT_EQ(hex(std::span(format).first(20)),
            "5354454d4d41444b"  // STEMMADK
            "03000000"          // version
            "00100000"          // bytes of a page
            "00010000"          // bytes of a record
  );
  EXPECT_EQ(hex(std::span(format).subspan(20, 36)), std::string(72, '0'));

  const RecordBytes entry = bytes_of(some_record());
  EXPECT_EQ(hex(std::span(entry).first(8)), "5354454d4d41454e");  // An entry's header.
  EXPECT_EQ(hex(std::span(entry).subspan(128, 32)),
            "03020000"
            "00000000"          // priority, number of extents
            "0506000000000000"  // used
            "0b0a000004000000"  // extents: first page, pages
            "0200000001000000");
  EXPECT_EQ(hex(std::span(entry).subspan(160, 88)), std::string(176, '0'));

  TableRecord retired = some_record();
  retired.kind = TableRecord::Kind::retired;
  const RecordBytes bad = bytes_of(retired);
  EXPECT_EQ(hex(std::span(bad).first(8)), "5354454d4d414244");  // STEMMABD
  EXPECT_EQ(hex(std::span(bad).subspan(96, 8)), "3412000000000000");

  Uses uses = {};
  uses[1] = 0x0102;
  std::array<uint8_t, kPage> page;
  write_uses(uses, page);
  EXPECT_EQ(hex(std::span(page).first(16)), "00000000000000000201000000000000");
}

TEST(DiskLayout, AFlippedBitIsNoticed) {
  std::array<uint8_t, kFormatBytes> format;
  write_format(format);
  ASSERT_TRUE(read_format(format));
  for (size_t bit = 0; bit < kFormatBytes * 8; ++bit) {
    auto bad = format;
    bad[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_FALSE(read_format(bad)) << bit;
  }
  const RecordBytes record = bytes_of(some_record());
  ASSERT_EQ(*read_record(record), some_record());
  for (size_t bit = 0; bit < kRecordBytes * 8; ++bit) {
    auto bad = record;
    bad[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    const auto read = read_record(bad);
    EXPECT_TRUE(!read && read.error().code() == Errc::corrupt) << bit;
  }
  Uses uses = {};
  std::array<uint8_t, kPage> page;
  write_uses(uses, page);
  ASSERT_TRUE(read_uses(page, uses));
  page[77] ^= 1U;
  EXPECT_FALSE(read_uses(page, uses));
}

TEST(DiskLayout, RecordsThatCannotBeAreNotBelieved) {
  EXPECT_EQ(read_record(RecordBytes{}).error().code(), Errc::stale);
  const auto refused = [](const std::function<void(TableRecord&)>& change) {
    TableRecord record = some_record();
    change(record);
    EXPECT_EQ(read_record(bytes_of(record)).error().code(), Errc::corrupt);
  };
  refused([](TableRecord& record) { record.extents[1].pages = 2; });  // More than the entry has.
  refused([](TableRecord& record) { record.extents[1].pages = 0; });
  refused([](TableRecord& record) { record.extents[1].first = 0x0A0C; });  // In the other one.
  refused([](TableRecord& record) { record.extents[0].first = 0xFFFF'FFFEU; });
  refused([](TableRecord& record) { record.extent_count = 1; });
  refused([](TableRecord& record) { record.priority = 255; });
  refused([](TableRecord& record) {
    record.extents[5].first = 1;
    record.extent_count = 6;
  });
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    RecordBytes noise;
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    EXPECT_FALSE(read_record(noise));
  }
}

TEST(DiskLayout, OtherVersionsAndForeignFilesAreToldApart) {
  std::array<uint8_t, kFormatBytes> format;
  write_format(format);
  for (const uint8_t version : {uint8_t{1}, uint8_t{2}, uint8_t{9}}) {
    auto other = format;
    other[8] = version;
    const auto told = read_format(other);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().code(), Errc::unsupported);
    EXPECT_EQ(told.error().value(), version);
  }
  EXPECT_EQ(read_format(std::span(format).first(63)).error().code(), Errc::corrupt);
  EXPECT_EQ(read_format({}).error().code(), Errc::corrupt);
}

TEST(DiskLayout, WordsLieBehindThePayload) {
  const EntryInfo info{.begin = 0, .end = 10, .layout = 0, .bytes = 4095, .words = 10};
  EXPECT_EQ(words_at(info), 4096U);
  EXPECT_EQ(body_bytes(info), 4136U);
  EXPECT_EQ(pages_of(info), 2U);
  EXPECT_EQ(pages_of({.begin = 0, .end = 10, .layout = 0, .bytes = 4096, .words = 0}), 1U);
}

}  // namespace stemma::tier::disk
