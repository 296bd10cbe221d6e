// What stands before a value: written, read, and refused if a bit of it is wrong.
#include "tier/object/envelope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tier/entry.h"

namespace stemma::tier::object {
namespace {

const std::vector<uint8_t> kKey = {1, 2, 3, 4, 5};
const std::vector<uint8_t> kParent = {9, 8};
using Bytes = std::array<uint8_t, kEnvelopeBytes>;

Bytes some() {
  Bytes bytes;
  write_envelope({.name = "vllm/llama",
                  .layout = 0x1122334455667788,
                  .space_value_bytes = 4096,
                  .key = kKey,
                  .parent = kParent,
                  .depth = 0x01020304,
                  .value_bytes = 4096},
                 bytes);
  return bytes;
}
// Makes the checksum match again.
Bytes summed(Bytes bytes) {
  uint64_t sum = tier::sum(std::span(bytes).first(kEnvelopeBytes - 8));
  for (size_t i = 0; i < 8; ++i, sum >>= 8U)
    bytes[kEnvelopeBytes - 8 + i] = static_cast<uint8_t>(sum);
  return bytes;
}

TEST(Envelope, WhatWasWrittenIsRead) {
  const Bytes bytes = some();
  const Result<Envelope> read = read_envelope(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "vllm/llama");
  EXPECT_EQ(read->layout, 0x1122334455667788);
  EXPECT_EQ(read->space_value_bytes, 4096U);
  EXPECT_EQ(read->value_bytes, 4096U);
  EXPECT_EQ(read->depth, 0x01020304U);
  EXPECT_TRUE(std::ranges::equal(read->key, kKey));
  EXPECT_TRUE(std::ranges::equal(read->parent, kParent));
}

TEST(Envelope, EveryByteIsWhereTheDocumentSays) {
  const Bytes bytes = some();
  EXPECT_EQ(std::memcmp(bytes.data(), "STEMMAOB", 8), 0);
  EXPECT_EQ(bytes[8], 1);
  EXPECT_EQ(bytes[12], 5);
  EXPECT_EQ(bytes[13], 10);
  EXPECT_EQ(bytes[14], 2);
  EXPECT_EQ(bytes[16], 0x88);
  EXPECT_EQ(bytes[23], 0x11);
  EXPECT_EQ(bytes[25], 0x10);
  EXPECT_EQ(bytes[33], 0x10);
  EXPECT_EQ(bytes[40], 4);
  EXPECT_EQ(bytes[48], 1);
  EXPECT_EQ(std::memcmp(bytes.data() + 112, "vllm/llama", 10), 0);
  EXPECT_EQ(bytes[176], 9);
}

TEST(Envelope, AFlippedBitIsNoticedWhereverItIs) {
  for (size_t bit = 0; bit < kEnvelopeBytes * 8; ++bit) {
    Bytes bytes = some();
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_FALSE(read_envelope(bytes)) << bit;
  }
}

TEST(Envelope, WhatNobodyWritesIsRefusedAlsoWithAGoodChecksum) {
  const auto with = [](size_t at, uint8_t value) {
    Bytes bytes = some();
    bytes[at] = value;
    return summed(bytes);
  };
  ASSERT_TRUE(read_envelope(summed(some())));
  EXPECT_EQ(read_envelope(with(8, 2)).error().code(), Errc::unsupported);
  EXPECT_EQ(read_envelope(with(12, 0)).error().code(), Errc::corrupt);   // No key.
  EXPECT_EQ(read_envelope(with(12, 65)).error().code(), Errc::corrupt);  // Too long.
  EXPECT_EQ(read_envelope(with(13, 0)).error().code(), Errc::corrupt);   // No name.
  EXPECT_EQ(read_envelope(with(13, 255)).error().code(), Errc::corrupt);
  EXPECT_EQ(read_envelope(with(14, 65)).error().code(), Errc::corrupt);
  EXPECT_EQ(read_envelope(with(15, 1)).error().code(), Errc::corrupt);     // Unused.
  EXPECT_EQ(read_envelope(with(60, 1)).error().code(), Errc::corrupt);     // After the key.
  EXPECT_EQ(read_envelope(with(112, ' ')).error().code(), Errc::corrupt);  // Not allowed in a name.
  EXPECT_EQ(read_envelope(with(39, 1)).error().code(), Errc::corrupt);     // Larger than any value.
  EXPECT_EQ(read_envelope(with(240, 1)).error().code(), Errc::corrupt);    // Unused.
}

TEST(Envelope, ItIsOfOneEntryAlone) {
  const Bytes bytes = some();
  const Envelope read = read_envelope(bytes).value();
  const auto space = [](std::string_view name, uint64_t layout, uint64_t size) {
    return Space::make(name, layout, size).value();
  };
  EXPECT_TRUE(read.is_of(space("vllm/llama", 0x1122334455667788, 4096), kKey));
  EXPECT_FALSE(read.is_of(space("vllm/llama", 0x1122334455667788, 4096), kParent));
  EXPECT_FALSE(read.is_of(space("vllm/llamb", 0x1122334455667788, 4096), kKey));
  EXPECT_FALSE(read.is_of(space("vllm/llama", 0x1122334455667789, 4096), kKey));
  EXPECT_FALSE(read.is_of(space("vllm/llama", 0x1122334455667788, 0), kKey));
}

}  // namespace
}  // namespace stemma::tier::object
