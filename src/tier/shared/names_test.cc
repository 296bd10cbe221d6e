#include "tier/shared/names.h"

#include <gtest/gtest.h>

namespace stemma::tier::shared {
namespace {

EntryKey some_key() {
  EntryKey key;
  for (size_t i = 0; i < key.chain.bytes.size(); ++i) {
    key.chain.bytes[i] = static_cast<uint8_t>(0xAB + i);
  }
  key.kind = EntryKind::checkpoint;
  key.group = 0x1F;
  return key;
}

// docs/formats/shared-tier.md
TEST(SharedNames, AreWhatTheDocumentSays) {
  EXPECT_EQ(file_name(some_key()),
            "abacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9ca.checkpoint.1f");
  EXPECT_EQ(folder_name(folder_of(some_key())), "a");
  EXPECT_EQ(scope_name(owner_of(some_key())), "c3c4c5c6c7c8c9ca");
  EXPECT_EQ(marker_text(kSharedVersion), "stemma shared tier, version 2\n");
  EXPECT_EQ(temporary_prefix("a.host", 12, 0xA1), ".stemma-tmp-a_host-12-a100000000000000-");
}

TEST(SharedNames, EveryKeyComesBackFromItsName) {
  for (const EntryKind kind : kEntryKinds) {
    for (const uint8_t group : {uint8_t{0}, uint8_t{9}, uint8_t{255}}) {
      EntryKey key = some_key();
      key.kind = kind;
      key.group = group;
      EXPECT_EQ(parse_name(file_name(key)), key);
    }
  }
}

TEST(SharedNames, EveryScopeComesBackFromItsName) {
  for (const uint64_t owner : {uint64_t{0}, uint64_t{0x0123'4567'89AB'CDEF}, ~uint64_t{0}}) {
    EXPECT_EQ(parse_scope(scope_name(owner)), owner);
  }
  for (const char* name :
       {"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg"}) {
    EXPECT_FALSE(parse_scope(name)) << name;
  }
}

TEST(SharedNames, WhatIsNamedOtherwiseIsNotOurs) {
  const std::string good = file_name(some_key());
  EXPECT_TRUE(parse_name(good));
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char letter : {'g', 'A', '/', '.', ' ', '\0'}) {
      std::string bad = good;
      if (bad[i] == letter) continue;
      bad[i] = letter;
      EXPECT_FALSE(parse_name(bad)) << bad;
    }
    EXPECT_FALSE(parse_name(good.substr(0, i)));
  }
  EXPECT_FALSE(parse_name(good + "0"));
  EXPECT_FALSE(is_temporary(good));
  EXPECT_FALSE(is_temporary(".tmp"));
  EXPECT_FALSE(is_ours_at_top("abc"));
  EXPECT_FALSE(is_ours_at_top("AB"));
  EXPECT_FALSE(is_ours_at_top("format"));
  EXPECT_FALSE(is_ours_at_top("g"));
  EXPECT_TRUE(is_ours_at_top("a"));
  EXPECT_TRUE(is_ours_at_top("ab")) << "an earlier version's";
  EXPECT_TRUE(is_ours_at_top(kMarkerName));
}

TEST(SharedNames, AMarkerIsReadStrictly) {
  EXPECT_EQ(parse_marker("stemma shared tier, version 1\n"), 1U);
  EXPECT_EQ(parse_marker("stemma shared tier, version 70\nand what a later one adds\n"), 70U);
  for (const char* text :
       {"", "stemma shared tier, version 1", "stemma shared tier, version 0\n",
        "stemma shared tier, version x\n", "stemma shared tier, version 1 \n",
        "Stemma shared tier, version 1\n", "stemma shared tier, version 99999999999\n"}) {
    EXPECT_FALSE(parse_marker(text)) << text;
  }
}

}  // namespace
}  // namespace stemma::tier::shared
