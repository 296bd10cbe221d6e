#include "key/content_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <unordered_set>
#include <vector>

#include "key/sha256.h"
#include "support/rooms/media_spans.h"

namespace stemma::key {
namespace {

using test::spans_of;

// The Python in docs/formats/content-key.md prints these vectors; it shares no code with us.
constexpr const char* kScopePlain =
    "7d683ff7294ecafabf353c95bec5478e2cd86b9c60bbf66dd5f22d7594f5e665";
constexpr const char* kScopeFull =
    "54d174272299223c57ffdc05df5c79ffa375f090369bd1838d5f4d615acbdd6d";
constexpr const char* kRootPlain =
    "7a991e3f88f439eb16ff2b2a329080b148c7f17d469bace7903632240e5571e9";
constexpr const char* kRootFull =
    "2a861fb9f6fe5ef5570027e47d5688054542be2ecb45533d27252bc9dd6cdf05";
constexpr const char* kBlock0 = "45b670465a283aaf9c2d7d5c269d57c53e4b7b0ef5957351903632240e5571e9";
constexpr const char* kBlock1 = "08b10866456015dca7eb132f73cd78526b5da4cc77f28ab9903632240e5571e9";
constexpr const char* kTailOf5 = "343c95d17208f31e829309ccf1bf722c150387a61a4483bb903632240e5571e9";
constexpr const char* kOneWord = "595840fe951300b03809cbc8f2e0fc3f167c92e940d00e4d903632240e5571e9";
constexpr const char* k32Words = "d773a9518b15316145c0e7d0686ca5507353eb19f7b3a7dd903632240e5571e9";
constexpr const char* k1024Words =
    "bf19febe825d4230048ba040852cbc545f0a0ec0784bcf38903632240e5571e9";
constexpr const char* kImageBegins =
    "8c1be67dd80f1d84be82c995b3e96992d300451728803595903632240e5571e9";
constexpr const char* kImageEndsSound =
    "ac892c991319e39c91777614030ce358bd063243c8f4ea16903632240e5571e9";
constexpr const char* kMixedDigest = "b30e699c8dc0e1bc5a4c2a09c03a7d42";
constexpr const char* kMixedBlock =
    "8c732f4da1eb08bdc3d3d77a3b46b891ef48bfe51048db20903632240e5571e9";

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

TEST(ContentKey, EndsAsTheRootKeyOfItsScopeDoes) {
  const auto ending = [](const ContentKey& key) { return key.hex().substr(64 - 2 * kOwnerBytes); };
  for (const ContentKey& key : keys_of(count_from(0, 40), {kImage, kSound})) {
    EXPECT_EQ(ending(key), ending(root()));
  }
  std::vector<ContentKey> chain(3);
  chain_keys(root_key(scope(full_spec())), count_from(0, 48), 16, chain);
  EXPECT_EQ(ending(chain[2]), ending(root_key(scope(full_spec()))));
  EXPECT_NE(ending(chain[2]), ending(root()));
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
