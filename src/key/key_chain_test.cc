#include "key/key_chain.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace stemma::key {
namespace {

Scope scope_of(const char* model) { return *Scope::make({.model = model}); }

TEST(KeyChain, OnTheGridItIsTheChain) {
  std::vector<uint32_t> words(64);
  std::iota(words.begin(), words.end(), 7U);
  const Scope scope = scope_of("m");
  std::vector<ContentKey> keys(4);
  chain_keys(root_key(scope), words, 16, keys);
  KeyChain chain(scope, words, {}, 16);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(chain.at(16 * (i + 1)), keys[i]) << i;
  // Backwards too.
  for (uint32_t i = 4; i-- > 0;) EXPECT_EQ(chain.at(16 * (i + 1)), keys[i]) << i;
}

TEST(KeyChain, BetweenTwoItIsALastBlockThatIsNotFull) {
  std::vector<uint32_t> words(40);
  std::iota(words.begin(), words.end(), 7U);
  const Scope scope = scope_of("m");
  KeyChain chain(scope, words, {}, 16);
  EXPECT_EQ(chain.parent_of(35), chain.at(32));
  EXPECT_EQ(chain.parent_of(16), chain.parent_of(1));
  EXPECT_EQ(chain.parent_of(32), chain.at(16));
  EXPECT_EQ(chain.parent_of(33), chain.at(32));
  const ContentKey at_35 = chain.at(35);
  EXPECT_EQ(at_35, block_key(chain.at(32), std::span(words).subspan(32, 3)));
  // Whatever words follow, and whatever keys were asked for before.
  words.resize(35);
  KeyChain other(scope, words, {}, 16);
  EXPECT_EQ(other.at(35), at_35);
}

TEST(KeyChain, EveryDepthEveryScopeEveryGridHasItsOwn) {
  std::vector<uint32_t> words(33);
  std::iota(words.begin(), words.end(), 1U);
  std::set<ContentKey> seen;
  KeyChain a(scope_of("a"), words, {}, 16);
  KeyChain b(scope_of("b"), words, {}, 16);
  for (uint32_t depth = 1; depth <= 33; ++depth) {
    EXPECT_TRUE(seen.insert(a.at(depth)).second) << depth;
    EXPECT_TRUE(seen.insert(b.at(depth)).second) << depth;
  }
  KeyChain coarse(scope_of("a"), words, {}, 32);
  EXPECT_TRUE(seen.insert(coarse.at(32)).second);
}

TEST(KeyChain, MediaCountByWhatTheyAre) {
  const std::vector<uint32_t> words(32, 5);
  MediaSpan span{.begin = 10, .end = 20, .identity = {.length = 10}};
  const Scope scope = scope_of("m");
  const auto keys = [&](const MediaSpan& of) {
    const std::vector<MediaSpan> spans = {of};
    KeyChain chain(scope, words, spans, 16);
    return std::vector<ContentKey>{chain.at(8), chain.at(16), chain.at(32)};
  };
  const auto before = keys(span);
  span.identity.digest[0] = 1;
  const auto after = keys(span);
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
  EXPECT_NE(before[2], after[2]);
}

}  // namespace
}  // namespace stemma::key
