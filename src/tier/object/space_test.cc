// How engines' namespaces and keys become the names that tiers know.
#include "tier/object/space.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "key/content_key.h"
#include "key/sha256.h"

namespace stemma::tier::object {
namespace {

std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }
Space space(std::string_view name = "vllm", uint64_t layout = 1, uint64_t value_bytes = 0) {
  return Space::make(name, layout, value_bytes).value();
}

TEST(ObjectSpace, OtherNamesLayoutsSizesAndKeysHaveOtherEntries) {
  std::set<std::string> seen;
  size_t made = 0;
  for (const char* name : {"a", "b", "ab", "a/b"}) {
    for (const uint64_t layout : {0, 1, 2}) {
      for (const uint64_t size : {0, 64, 65}) {
        for (const char* key : {"k", "kk", "b", "abc"}) {
          seen.insert(space(name, layout, size).entry_key(bytes(key)).chain.hex());
          ++made;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(ObjectSpace, AKeyThatIsTheBeginningOfAnotherIsAnother) {
  std::set<std::string> seen;
  const std::vector<uint8_t> zeros(kMostKeyBytes, 0);
  for (size_t size = 1; size <= kMostKeyBytes; ++size) {
    seen.insert(space().entry_key(std::span(zeros).first(size)).chain.hex());
  }
  EXPECT_EQ(seen.size(), kMostKeyBytes);
}

TEST(ObjectSpace, AllKeysOfANameBelongToOneOwnerWhateverTheirLayout) {
  const uint64_t owner = space("vllm").owner();
  EXPECT_EQ(owner_of(space("vllm", 7, 64).entry_key(bytes("x"))), owner);
  EXPECT_EQ(owner_of(space("vllm", 8).entry_key(bytes("y"))), owner);
  EXPECT_NE(owner_of(space("vllm2").entry_key(bytes("x"))), owner);
}

TEST(ObjectSpace, KeysAreWhatTheDocumentSays) {
  // docs/formats/object-entry.md, computed by hand.
  const std::string root_text = "stemma.space.v1vllm";
  const key::Digest root = key::sha256(bytes(root_text));
  std::vector<uint8_t> message(root.begin(), root.end());
  for (const char c : std::string("stemma.object.v1")) message.push_back(static_cast<uint8_t>(c));
  message.insert(message.end(), 16, 0);
  message.push_back(3);
  for (const char c : std::string("key")) message.push_back(static_cast<uint8_t>(c));
  ContentKey chain{key::sha256(message)};
  std::copy(root.begin() + 24, root.end(), chain.bytes.begin() + 24);
  const Space here = space("vllm", 9, 4096);
  EXPECT_EQ(here.entry_key(bytes("key")),
            stemma::entry_key(chain, EntryKind::object, 0, here.tier_layout()));
  EXPECT_EQ(here.link(bytes("key")), link_of(chain));
}

// Also runs without the CPU's instructions for SHA-256.
TEST(ObjectSpace, ManyKeysAtOnceAreTheSameAsOneByOne) {
  const Space here = space("many", 3, 8);
  std::vector<std::vector<uint8_t>> all;
  for (size_t i = 0; i < 203; ++i) {
    all.emplace_back(1 + i % kMostKeyBytes, static_cast<uint8_t>(i));
    if (i > 100 && i % 9 != 0) all.back().resize(36);  // Mostly of one size, as an engine's are.
  }
  const std::vector<std::span<const uint8_t>> keys(all.begin(), all.end());
  for (const bool portable : {true, false}) {
    key::force_portable_sha256(portable);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4}, size_t{53}, size_t{203}}) {
      std::vector<EntryKey> entries(count);
      here.entry_keys(std::span(keys).first(count), entries);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(entries[i], here.entry_key(keys[i])) << i;
    }
  }
}

TEST(ObjectSpace, NamesAreCheckedBeforeAnythingIsMade) {
  const std::string longest(64, 'n');
  EXPECT_TRUE(Space::make(longest, 0, 0));
  EXPECT_TRUE(Space::make("A-z_0.9/:@+", 0, 0));
  for (const std::string& name :
       {std::string(), longest + "n", std::string("a b"), std::string("a\n"), std::string("\"a"),
        std::string("\xC3\xA4"), std::string("a\0b", 3)}) {
    EXPECT_EQ(Space::make(name, 0, 0).error().code(), Errc::invalid_argument) << name;
  }
  EXPECT_TRUE(Space::make("a", 0, kMostValueBytes));
  EXPECT_EQ(Space::make("a", 0, kMostValueBytes + 1).error().code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace stemma::tier::object
