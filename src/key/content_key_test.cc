#include "key/content_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <unordered_set>
#include <vector>

#include "key/sha256.h"

namespace stemma::key {
namespace {

// The Python in docs/formats/content-key.md prints these vectors; it shares no code with us.
constexpr const char* kScopePlain =
    "7d683ff7294ecafabf353c95bec5478e2cd86b9c60bbf66dd5f22d7594f5e665";
constexpr const char* kScopeFull =
    "54d174272299223c57ffdc05df5c79ffa375f090369bd1838d5f4d615acbdd6d";
constexpr const char* kRootPlain =
    "7a991e3f88f439eb16ff2b2a329080b148c7f17d469bace7903632240e5571e9";
constexpr const char* kRootFull =
    "2a861fb9f6fe5ef5570027e47d5688054542be2ecb45533d27252bc9dd6cdf05";
constexpr const char* kBlock0 = "3b2481bcd8df7aeb154848674af3dacc53b9a722edb232dcc13a3f9a38cbe227";
constexpr const char* kBlock1 = "fbbd2a5a48285680ce94c459bcd8b0869bfdd8479882ddd82752e04da1ed6137";
constexpr const char* kTailOf5 = "2a52702ec82bc2743f78cc060e9745df7a7374c17659cf67c671cb790ee8594b";
constexpr const char* kOneWord = "db9d3ceb78fcb7d8082de1dd62662e978d8799c9b63c650e8d484bec0dd0ab3c";
constexpr const char* k32Words = "93bb7fcac167971891710e6542e179d78d557ce6be6e436888c443ab45cee0ed";
constexpr const char* k1024Words =
    "fbae74f673c6c7cd541a544b23ba1d5251b101f93a7ea71d04cb9bda3f63df83";
constexpr const char* kImageBegins =
    "75cf7dff9fabdeca05f19935f2984848696f6a11904f612a1a544d4be3c085f0";
constexpr const char* kImageEndsSound =
    "b2e862a72662f95aa14b390c7735821ab81babe96d440a9f0449ee369255ddfc";
constexpr const char* kMixedDigest = "b30e699c8dc0e1bc5a4c2a09c03a7d42";
constexpr const char* kMixedBlock =
    "0f4af353919df78da401debd9f4f93ab982d40c7bcc12f9249aa6193470a88be";

ScopeSpec plain_spec() { return {.model = "model-1"}; }
ScopeSpec full_spec() {
  return {.model = "model-1",
          .adapters = {{"poet", 7, 0.5}, {"X", 2, 1.0}},
          .kv_types = "f16/q8_0",
          .layout = "layout-a",
          .rope_and_window = "rope 1e6, window 4096",
          .state_format = 3,
          .tenant_salt = "salt",
          .caller_namespace = "staging"};
}
Scope scope(const ScopeSpec& spec) { return Scope::make(spec).value(); }
ContentKey root() { return root_key(scope(plain_spec())); }

std::vector<uint32_t> count_from(uint32_t first, size_t count) {
  std::vector<uint32_t> words(count);
  std::iota(words.begin(), words.end(), first);
  return words;
}

std::array<uint8_t, 16> digest_from(uint8_t first) {
  std::array<uint8_t, 16> digest;
  std::iota(digest.begin(), digest.end(), first);
  return digest;
}
const MediaItem kImage{.digest = digest_from(0), .offset = 10, .length = 20};
const MediaItem kSound{
    .kind = MediaKind::audio, .digest = digest_from(16), .offset = 30, .length = 2, .causal = true};

std::vector<MediaSpan> spans_of(const std::vector<MediaItem>& media, size_t positions) {
  const std::vector<Token> tokens(positions);
  std::vector<MediaSpan> out;
  find_media_spans({tokens, media}, out).value();
  return out;
}

// Keys of a prompt cut into blocks, the last of which may be short.
std::vector<ContentKey> keys_of(const std::vector<uint32_t>& words,
                                const std::vector<MediaItem>& media, uint32_t block_words = 16) {
  const std::vector<MediaSpan> spans = spans_of(media, words.size());
  std::vector<MediaRun> room(block_words);
  std::vector<ContentKey> keys;
  ContentKey key = root();
  for (uint32_t at = 0; at < words.size(); at += block_words) {
    const uint32_t count = std::min<uint32_t>(block_words, words.size() - at);
    key = block_key(key, std::span(words).subspan(at, count), media_runs(spans, at, count, room));
    keys.push_back(key);
  }
  return keys;
}

TEST(ContentKey, GoldenVectorsPinTheFormat) {
  for (const bool portable : {false, true}) {
    force_portable_sha256(portable);
    EXPECT_EQ(ContentKey{scope(plain_spec()).digest()}.hex(), kScopePlain);
    EXPECT_EQ(ContentKey{scope(full_spec()).digest()}.hex(), kScopeFull);
    EXPECT_EQ(root().hex(), kRootPlain);
    EXPECT_EQ(root_key(scope(full_spec())).hex(), kRootFull);
    const ContentKey first = block_key(root(), count_from(0, 16));
    EXPECT_EQ(first.hex(), kBlock0);
    EXPECT_EQ(block_key(first, count_from(16, 16)).hex(), kBlock1);
    EXPECT_EQ(block_key(first, count_from(16, 5)).hex(), kTailOf5);
    EXPECT_EQ(block_key(root(), std::vector<uint32_t>{kTokenLimit - 1}).hex(), kOneWord);
    EXPECT_EQ(block_key(root(), count_from(0, 32)).hex(), k32Words);
    EXPECT_EQ(block_key(root(), count_from(0, 1024)).hex(), k1024Words);
  }
  force_portable_sha256(false);
}

TEST(ContentKey, GoldenVectorsPinTheFormatOfMedia) {
  std::vector<uint32_t> words = count_from(0, 16);
  const std::vector<uint32_t> again = count_from(0, 16);
  words.insert(words.end(), again.begin(), again.end());
  const std::vector<ContentKey> keys = keys_of(words, {kImage, kSound});
  EXPECT_EQ(keys[0].hex(), kImageBegins);
  EXPECT_EQ(keys[1].hex(), kImageEndsSound);

  MediaItem image = kImage, sound = kSound;
  image.offset = 4, image.length = 6;
  sound.offset = 8, sound.length = 4;
  const MediaIdentity mixed = spans_of({image, sound}, 16)[0].identity;
  ContentKey digest;
  std::copy(mixed.digest.begin(), mixed.digest.end(), digest.bytes.begin());
  EXPECT_EQ(digest.hex().substr(0, 32), kMixedDigest);
  EXPECT_EQ(keys_of(again, {image, sound})[0].hex(), kMixedBlock);
}

TEST(ContentKey, AChainIsItsBlocksOneByOne) {
  std::mt19937 random(5);
  for (const uint32_t block_words : {1U, 2U, 8U, 16U, 17U, 32U, 256U, 1024U}) {
    std::vector<uint32_t> words(size_t{block_words} * 20);
    for (uint32_t& word : words) word = random() % kTokenLimit;
    std::vector<ContentKey> keys(20);
    chain_keys(root(), words, block_words, keys);
    EXPECT_EQ(keys, keys_of(words, {}, block_words)) << block_words;
  }
  chain_keys(root(), {}, 16, {});
}

TEST(ContentKey, EveryWordAndTheParentCount) {
  std::vector<uint32_t> words = count_from(100, 16);
  std::set<ContentKey> keys{block_key(root(), words)};
  for (uint32_t& word : words) {
    word ^= 1U << 30;
    keys.insert(block_key(root(), words));
    word ^= 1U << 30;
  }
  keys.insert(block_key(root_key(scope(full_spec())), words));
  EXPECT_EQ(keys.size(), 18U);
}

TEST(ContentKey, GenerationsOfAnAdapterNeverShareAKey) {
  std::unordered_set<ContentKey> keys;
  for (uint64_t generation = 0; generation < 100; ++generation) {
    const ScopeSpec spec{.model = "m", .adapters = {{"poet", generation}}};
    keys.insert(block_key(root_key(scope(spec)), count_from(0, 16)));
  }
  keys.insert(block_key(root_key(scope({.model = "m"})), count_from(0, 16)));
  EXPECT_EQ(keys.size(), 101U);
}

TEST(ContentKey, ATailHasAKeyOfItsOwn) {
  std::vector<uint32_t> words(16, 0);
  std::set<ContentKey> keys;
  for (size_t count = 1; count <= words.size(); ++count) {
    keys.insert(block_key(root(), std::span(words).first(count)));
  }
  EXPECT_EQ(keys.size(), 16U);
}

TEST(ContentKey, TheNumberOfAMediaItemIsNotInTheKey) {
  std::vector<uint32_t> here = count_from(0, 40), there = here;
  for (uint32_t i = kImage.offset; i < kImage.offset + kImage.length; ++i) {
    here[i] = media_word(0);
    there[i] = media_word(kMediaNumberLimit - 1);
  }
  EXPECT_EQ(keys_of(here, {kImage}), keys_of(there, {kImage}));
}

TEST(ContentKey, EverythingAboutAMediaItemIsInTheKey) {
  const std::vector<uint32_t> words = count_from(0, 40);
  std::vector<std::vector<MediaItem>> prompts(8, {kImage});
  prompts[1][0].kind = MediaKind::video;
  prompts[2][0].causal = true;
  prompts[3][0].digest[15] ^= 1;
  prompts[4][0].length = 21;  // The first block shows the same six positions of it.
  prompts[5][0].offset = 11;
  prompts[6].clear();
  prompts[7][0].length = 3, prompts[7].push_back(kImage);  // Overlap: another item.
  std::set<ContentKey> first_keys;
  for (const auto& media : prompts) first_keys.insert(keys_of(words, media)[0]);
  EXPECT_EQ(first_keys.size(), prompts.size());
}

TEST(ContentKey, TheSameItemTwiceIsNotOneLongItem) {
  const std::vector<uint32_t> words = count_from(0, 16);
  MediaItem first = kSound, second = kSound, longer = kSound;
  first.offset = 2, second.offset = 4, longer.offset = 2, longer.length = 4;
  EXPECT_NE(keys_of(words, {first, second})[0], keys_of(words, {longer})[0]);
}

TEST(ContentKey, RunsCoverExactlyTheMediaOfABlock) {
  const std::vector<MediaSpan> spans = spans_of({kImage, kSound}, 64);  // [10, 30), [30, 32).
  std::vector<MediaRun> room(16);
  const auto runs = [&](uint32_t begin, uint32_t count) {
    return media_runs(spans, begin, count, room);
  };
  EXPECT_TRUE(runs(0, 10).empty());
  EXPECT_TRUE(runs(32, 16).empty());
  ASSERT_EQ(runs(0, 16).size(), 1U);
  EXPECT_EQ(room[0].first_word, 10U);
  EXPECT_EQ(room[0].count, 6U);
  EXPECT_EQ(room[0].offset_in_item, 0U);
  EXPECT_EQ(room[0].identity, &spans[0].identity);
  ASSERT_EQ(runs(16, 16).size(), 2U);
  EXPECT_EQ(room[0].count, 14U);
  EXPECT_EQ(room[0].offset_in_item, 6U);
  EXPECT_EQ(room[1].first_word, 14U);
  EXPECT_EQ(room[1].count, 2U);
  EXPECT_EQ(room[1].identity, &spans[1].identity);
  ASSERT_EQ(runs(20, 4).size(), 1U);
  EXPECT_EQ(room[0].first_word, 0U);
  EXPECT_EQ(room[0].count, 4U);
  EXPECT_EQ(room[0].offset_in_item, 10U);
}

TEST(ContentKey, SortsAsItsHexDoes) {
  ContentKey low{}, high{};
  low.bytes[0] = 0x7F, high.bytes[0] = 0x80;
  EXPECT_LT(low, high);
  EXPECT_LT(low.hex(), high.hex());
  EXPECT_EQ(high.hex(), "80" + std::string(62, '0'));
}

}  // namespace
}  // namespace stemma::key
