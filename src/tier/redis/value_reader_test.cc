#include "tier/redis/value_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tier/redis/key_name.h"

namespace stemma::tier::redis {
namespace {

struct Scene {
  explicit Scene(uint64_t payload_bytes, uint32_t word_count) {
    key.chain.bytes.fill(0x5A);
    key.kind = EntryKind::segment;
    for (uint32_t i = 0; i < word_count; ++i) words.push_back(i * 77);
    for (uint64_t i = 0; i < payload_bytes; ++i) payload.push_back(static_cast<uint8_t>(i * 31));
    EntryHeader header;
    header.key = key;
    header.info = {.begin = 16,
                   .end = 16 + std::max(word_count, 1U),
                   .layout = 9,
                   .bytes = payload_bytes,
                   .words = word_count};
    header.sum = sum(words, payload);
    info = header.info;
    value.resize(kHeaderBytes);
    write_header(header, std::span<uint8_t, kHeaderBytes>(value.data(), kHeaderBytes));
    const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
    value.insert(value.end(), bytes, bytes + words.size() * 4);
    value.insert(value.end(), payload.begin(), payload.end());
    room.assign(payload_bytes, 0);
    item.key = key;
    item.info.layout = 9;
    item.into = room;
  }
  TierOutcome read(size_t piece, size_t cut_at = SIZE_MAX) {
    ValueReader reader;
    reader.begin(value.size(), &item);
    size_t at = 0;
    while (!reader.whole()) {
      if (at >= cut_at) reader.cut_loose();
      const std::span<uint8_t> to = reader.room();
      if (to.empty()) return TierOutcome::pending;  // The value can never be complete.
      const size_t some = std::min({piece, to.size(), value.size() - at});
      std::memcpy(to.data(), value.data() + at, some);
      reader.took(some);
      at += some;
    }
    EXPECT_EQ(at, value.size());
    return reader.finish();
  }

  EntryKey key;
  EntryInfo info;
  std::vector<uint32_t> words;
  std::vector<uint8_t> payload, value, room;
  TierItem item;
};

TEST(ValueReader, PutsThePayloadWhereItBelongsHoweverItIsCut) {
  for (const uint32_t words : {0U, 5U}) {
    for (const size_t piece : {1UL, 7UL, 128UL, 200UL, 1'000'000UL}) {
      Scene scene(300, words);
      EXPECT_EQ(scene.read(piece), TierOutcome::done);
      EXPECT_EQ(scene.room, scene.payload);
      EXPECT_EQ(scene.item.info, scene.info);
    }
  }
}

TEST(ValueReader, DamageAnywhereIsNoticed) {
  const size_t all = Scene(64, 3).value.size();
  for (size_t at = 0; at < all; ++at) {
    Scene scene(64, 3);
    scene.value[at] ^= 0x10U;
    EXPECT_EQ(scene.read(50), TierOutcome::corrupt) << at;
  }
  for (size_t bytes = 0; bytes < all; ++bytes) {
    Scene scene(64, 3);
    scene.value.resize(bytes);
    EXPECT_EQ(scene.read(50), TierOutcome::corrupt) << bytes;
  }
  Scene longer(64, 3);
  longer.value.push_back(0);
  EXPECT_EQ(longer.read(50), TierOutcome::corrupt);
}

TEST(ValueReader, NothingIsWrittenForAnItemThatIsCutLoose) {
  for (size_t cut_at = 0; cut_at < 400; cut_at += 20) {
    Scene scene(300, 0);
    scene.read(20, cut_at);
    const size_t written = cut_at > kHeaderBytes ? cut_at + 20 - kHeaderBytes : 0;
    for (size_t i = written; i < scene.room.size(); ++i) ASSERT_EQ(scene.room[i], 0) << cut_at;
  }
}

TEST(ValueReader, ARoomThatIsTooSmallIsLeftAlone) {
  Scene scene(300, 0);
  scene.item.into = std::span(scene.room).first(299);
  EXPECT_EQ(scene.read(64), TierOutcome::refused);
  EXPECT_EQ(scene.item.info.bytes, 300U);
  EXPECT_EQ(scene.room, std::vector<uint8_t>(300, 0));
}

TEST(ValueReader, AnotherOnesEntryIsNotBelieved) {
  Scene other_key(64, 0);
  other_key.item.key.group = 1;
  EXPECT_EQ(other_key.read(64), TierOutcome::corrupt);
  Scene other_layout(64, 0);
  other_layout.item.info.layout = 10;
  EXPECT_EQ(other_layout.read(64), TierOutcome::absent);
}

TEST(KeyNames, AreAsTheDocumentSays) {
  EntryKey key;
  for (size_t i = 0; i < key.chain.bytes.size(); ++i) {
    key.chain.bytes[i] = static_cast<uint8_t>(0xA0 + i);
  }
  key.kind = EntryKind::checkpoint;
  key.group = 255;
  EXPECT_EQ(
      KeyName(key).text(),
      "stemma:2:a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf:checkpoint:255");
  EXPECT_EQ(KeyName(key).text().size(), kMostKeyBytes);
  EXPECT_EQ(KeyName(EntryKey()).text(),
            "stemma:2:0000000000000000000000000000000000000000000000000000000000000000:block:0");
}

}  // namespace
}  // namespace stemma::tier::redis
