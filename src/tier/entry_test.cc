#include "tier/entry.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "key/key_chain.h"

namespace stemma::tier {
namespace {

using Bytes = std::array<uint8_t, kHeaderBytes>;

EntryHeader sample() {
  EntryHeader header;
  std::iota(header.key.chain.bytes.begin(), header.key.chain.bytes.end(), uint8_t{0xA0});
  header.key.kind = EntryKind::segment;
  header.key.group = 3;
  header.info = {.begin = 64,
                 .end = 128,
                 .layout = 0x1122334455667788U,
                 .bytes = 4096,
                 .words = 64,
                 .parent = 0x99AABBCCDDEEFF00U};
  header.sum = 0x0102030405060708U;
  header.written = 1'700'000'000;
  header.serial = 77;
  return header;
}

Bytes written(const EntryHeader& header) {
  Bytes bytes;
  write_header(header, bytes);
  return bytes;
}

// Bytes with a valid header checksum.
Bytes resealed(Bytes bytes) {
  const uint64_t all = sum(std::span<const uint8_t>(bytes).first(kHeaderBytes - 8));
  for (uint32_t i = 0; i < 8; ++i)
    bytes[kHeaderBytes - 8 + i] = static_cast<uint8_t>(all >> (8 * i));
  return bytes;
}

TEST(EntryHeader, IsReadAsItWasWritten) { EXPECT_EQ(*read_header(written(sample())), sample()); }

TEST(EntryHeader, EveryByteIsWhereTheDocumentSays) {
  const Bytes bytes = written(sample());
  const auto number = [&](uint32_t at, uint32_t size) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < size; ++i) value |= uint64_t{bytes[at + i]} << (8 * i);
    return value;
  };
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), 8), "STEMMAEN");
  EXPECT_EQ(number(8, 4), 1U);
  EXPECT_EQ(number(12, 1), 2U);
  EXPECT_EQ(number(13, 1), 3U);
  EXPECT_EQ(number(14, 2), 0U);
  EXPECT_EQ(bytes[16], 0xA0);
  EXPECT_EQ(bytes[47], 0xBF);
  EXPECT_EQ(number(48, 4), 64U);
  EXPECT_EQ(number(52, 4), 128U);
  EXPECT_EQ(number(56, 8), 0x1122334455667788U);
  EXPECT_EQ(number(64, 8), 4096U);
  EXPECT_EQ(number(72, 4), 64U);
  EXPECT_EQ(number(76, 4), 0U);
  EXPECT_EQ(number(80, 8), 0x0102030405060708U);
  EXPECT_EQ(number(88, 8), 1'700'000'000U);
  EXPECT_EQ(number(96, 8), 77U);
  EXPECT_EQ(number(104, 8), 0x99AABBCCDDEEFF00U);
  EXPECT_EQ(number(112, 8), 0U);
  EXPECT_EQ(number(120, 8), sum(std::span<const uint8_t>(bytes).first(120)));
}

TEST(EntryHeader, AFlippedBitAnywhereIsNoticed) {
  for (uint32_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    Bytes bytes = written(sample());
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1U << (bit % 8));
    EXPECT_FALSE(read_header(bytes)) << bit;
  }
}

TEST(EntryHeader, ANewerFormatIsToldFromDamage) {
  Bytes bytes = written(sample());
  bytes[8] = 2;
  EXPECT_EQ(read_header(bytes).error().code(), Errc::corrupt);
  const auto newer = read_header(resealed(bytes));
  EXPECT_EQ(newer.error().code(), Errc::unsupported);
  EXPECT_EQ(newer.error().value(), 2U);
}

// A checksum is not a signature: the header is checked even if the checksum holds.
TEST(EntryHeader, WhatCannotBeIsRefusedUnderAGoodChecksum) {
  struct Change {
    uint32_t at;
    uint8_t value;
  };
  for (const Change change : {Change{12, 0},
                              {12, 8},
                              {14, 1},
                              {48, 200},
                              {55, 0x80},
                              {70, 2},
                              {72, 63},
                              {76, 1},
                              {112, 1},
                              {119, 1}}) {
    Bytes bytes = written(sample());
    bytes[change.at] = change.value;
    EXPECT_EQ(read_header(resealed(bytes)).error().code(), Errc::corrupt) << change.at;
  }
  EntryHeader nothing = sample();
  nothing.info.bytes = 0;
  EXPECT_FALSE(read_header(written(nothing)));
}

TEST(EntrySum, OfPartsIsThatOfTheWhole) {
  const std::vector<uint8_t> payload(1000, 0x5A);
  std::vector<uint32_t> words(700);
  std::iota(words.begin(), words.end(), 0x01020304U);
  std::vector<uint8_t> body;
  for (const uint32_t word : words) {
    for (uint32_t i = 0; i < 4; ++i) body.push_back(static_cast<uint8_t>(word >> (8 * i)));
  }
  body.insert(body.end(), payload.begin(), payload.end());
  EXPECT_EQ(sum(words, payload), sum(body));
  EXPECT_EQ(sum({}, payload), sum(payload));
  EXPECT_NE(sum(body), sum(payload));
}

TEST(Believe, OnlyWhatWasAskedFor) {
  const EntryHeader header = sample();
  std::vector<uint8_t> room(4096);
  TierItem item;
  item.key = header.key;
  item.info.layout = header.info.layout;
  item.into = room;
  EXPECT_EQ(believe(header, item), TierOutcome::done);
  item.info.begin = 64;
  item.info.end = 128;
  EXPECT_EQ(believe(header, item), TierOutcome::done);
  item.into = std::span(room).first(4095);
  EXPECT_EQ(believe(header, item), TierOutcome::refused);
  item.into = room;
  item.info.begin = 0;
  EXPECT_EQ(believe(header, item), TierOutcome::absent) << "it is good, and somebody else's";
  item.info.begin = 64;
  item.info.layout ^= 1U;
  EXPECT_EQ(believe(header, item), TierOutcome::absent) << "it is good, and somebody else's";
  item.info.layout ^= 1U;
  item.key.chain.bytes[31] ^= 1U;
  EXPECT_EQ(believe(header, item), TierOutcome::corrupt);
}

TEST(EntryKeys, LayoutsHaveKeysOfTheirOwn) {
  const EntryKey one = sample().key;
  const EntryKey a = entry_key(one.chain, one.kind, one.group, 7);
  const EntryKey b = entry_key(one.chain, one.kind, one.group, 8);
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a == entry_key(one.chain, one.kind, one.group, 7));
  EXPECT_EQ(a.kind, one.kind);
  EXPECT_EQ(a.group, one.group);
  // Two prompts do not get the same key.
  ContentKey other = one.chain;
  other.bytes[0] ^= 1U;
  EXPECT_FALSE(a == entry_key(other, one.kind, one.group, 7));
}

TEST(EntryKeys, NameTheScopeTheyBelongTo) {
  const Scope mine = Scope::make({.model = "m", .tenant_salt = "one"}).value();
  const Scope other = Scope::make({.model = "m", .tenant_salt = "two"}).value();
  const std::vector<uint32_t> words(40, 7);
  key::KeyChain chain(mine, words, {}, 16);
  for (const uint32_t depth : {1U, 16U, 33U, 40U}) {
    for (const uint64_t layout : {0U, 7U}) {
      const EntryKey key = entry_key(chain.at(depth), EntryKind::segment, 1, layout);
      EXPECT_EQ(owner_of(key), owner_of(mine)) << depth;
      EXPECT_NE(owner_of(key), owner_of(other)) << depth;
    }
  }
}

TEST(CheckPut, RefusesWhatCannotBeKept) {
  const std::vector<uint8_t> bytes(100);
  const std::vector<uint32_t> words(8);
  TierItem item;
  item.info = {.begin = 0, .end = 8, .layout = 1, .bytes = 100, .words = 0};
  item.source = bytes;
  EXPECT_EQ(check_put(item, {}), TierOutcome::pending);
  EXPECT_EQ(check_put(item, {.max_entry_bytes = 100}), TierOutcome::pending);
  EXPECT_EQ(check_put(item, {.max_entry_bytes = 99}), TierOutcome::refused);
  item.words = words;
  EXPECT_EQ(check_put(item, {}), TierOutcome::refused);
  item.info.words = 8;
  EXPECT_EQ(check_put(item, {}), TierOutcome::pending);
  item.info.bytes = 101;
  EXPECT_EQ(check_put(item, {}), TierOutcome::refused);
  item.info.bytes = 100;
  item.info.end = 0;
  EXPECT_EQ(check_put(item, {}), TierOutcome::refused);
}

}  // namespace
}  // namespace stemma::tier
