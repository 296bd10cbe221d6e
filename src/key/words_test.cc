#include "key/words.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/rooms/media_spans.h"

namespace stemma::key {
namespace {

using test::spans_of;

MediaItem item(uint32_t offset, uint32_t length, uint8_t content = 1,
               MediaKind kind = MediaKind::image, bool causal = false) {
  return {.kind = kind, .digest = {content}, .offset = offset, .length = length, .causal = causal};
}

Error refused(const std::vector<MediaItem>& media, size_t positions = 100) {
  const std::vector<Token> tokens(positions);
  std::vector<MediaSpan> out(3);
  const Result<void> result = find_media_spans({tokens, media}, out);
  EXPECT_FALSE(result);
  EXPECT_TRUE(out.empty());
  return result.error();
}

TEST(Words, TokensMediaAndPaddingAreThreeThings) {
  EXPECT_TRUE(is_token_word(kTokenLimit - 1));
  EXPECT_FALSE(is_media_word(kTokenLimit - 1));
  for (const uint32_t number : {0U, kMediaNumberLimit - 1}) {
    EXPECT_TRUE(is_media_word(media_word(number)));
    EXPECT_FALSE(is_token_word(media_word(number)));
    EXPECT_EQ(media_number(media_word(number)), number);
  }
  EXPECT_FALSE(is_media_word(media_word(kMediaNumberLimit)));
  EXPECT_FALSE(is_token_word(kPadWord));
  EXPECT_FALSE(is_media_word(kPadWord));
}

TEST(Words, AMediaItemIsOneUnit) {
  const auto spans = spans_of({item(3, 7, 9, MediaKind::audio, true)});
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].begin, 3U);
  EXPECT_EQ(spans[0].end, 10U);
  EXPECT_EQ(spans[0].identity,
            (MediaIdentity{.kind = MediaKind::audio, .causal = true, .length = 7, .digest = {9}}));
}

TEST(Words, ItemsThatOnlyTouchStayTwo) {
  const auto spans = spans_of({item(0, 50), item(50, 50)});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].end, 50U);
  EXPECT_EQ(spans[1].begin, 50U);
  EXPECT_EQ(spans[0].identity, spans[1].identity);
}

TEST(Words, OverlappingItemsAreOneUnit) {
  // The first and the third meet only through the second; the fourth stands alone.
  const auto spans = spans_of({item(10, 5), item(14, 10), item(20, 2), item(24, 1)});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].begin, 10U);
  EXPECT_EQ(spans[0].end, 24U);
  EXPECT_EQ(spans[0].identity.kind, kMixedMedia);
  EXPECT_EQ(spans[0].identity.length, 14U);
  EXPECT_EQ(spans[1].identity.kind, MediaKind::image);
}

TEST(Words, AMixedItemIsItsPartsAndNotWhereItStands) {
  const auto identity = [](std::vector<MediaItem> media) { return spans_of(media)[0].identity; };
  const MediaIdentity here = identity({item(0, 5, 1), item(3, 5, 2)});
  EXPECT_EQ(here, identity({item(40, 5, 1), item(43, 5, 2)}));
  EXPECT_NE(here, identity({item(0, 5, 2), item(3, 5, 1)}));
  EXPECT_NE(here, identity({item(0, 6, 1), item(3, 5, 2)}));
  EXPECT_NE(here, identity({item(0, 5, 1), item(2, 6, 2)}));
  EXPECT_NE(here, identity({item(0, 5, 1, MediaKind::video), item(3, 5, 2)}));
  EXPECT_NE(here, identity({item(0, 5, 1), item(3, 5, 2, MediaKind::image, true)}));
  EXPECT_NE(here, identity({item(0, 5, 1), item(3, 5, 2), item(3, 5, 2)}));
}

TEST(Words, AMixedItemIsCausalOnlyIfAllPartsAre) {
  const auto causal = [](bool first, bool second) {
    return spans_of(
               {item(0, 5, 1, MediaKind::image, first), item(3, 5, 2, MediaKind::image, second)})[0]
        .identity.causal;
  };
  EXPECT_TRUE(causal(true, true));
  EXPECT_FALSE(causal(true, false));
  EXPECT_FALSE(causal(false, true));
}

TEST(Words, BrokenMediaItemsAreRefusedByIndex) {
  EXPECT_EQ(refused({item(0, 1), item(5, 0)}).code(), Errc::invalid_argument);
  EXPECT_EQ(refused({item(0, 1), item(5, 0)}).value(), 1U);
  EXPECT_EQ(refused({item(5, 1), item(4, 1)}).code(), Errc::invalid_argument);
  EXPECT_EQ(refused({item(99, 2)}).code(), Errc::out_of_range);
  EXPECT_EQ(refused({item(0xFFFF'FFFF, 0xFFFF'FFFF)}).code(), Errc::out_of_range);
  EXPECT_EQ(refused({item(1, 0xFFFF'FFFF)}).code(), Errc::out_of_range);
  EXPECT_EQ(refused({item(0, 1)}, 0).code(), Errc::out_of_range);
  EXPECT_EQ(refused({item(0, 1, 1, kMixedMedia)}).code(), Errc::invalid_argument);
  EXPECT_EQ(refused({item(0, 1, 1, MediaKind{0})}).code(), Errc::invalid_argument);
}

TEST(Words, PromptsBeyondTheLimitAreRefused) {
  // The tokens are never read, so no such array is needed.
  const Token one = 0;
  std::vector<MediaSpan> out;
  const std::span<const Token> fits(&one, kMaxPromptPositions);
  const std::span<const Token> too_long(&one, size_t{kMaxPromptPositions} + 1);
  EXPECT_TRUE(find_media_spans({fits}, out));
  EXPECT_EQ(find_media_spans({too_long}, out).error().code(), Errc::out_of_range);
}

TEST(Words, NoDepthInsideAUnitIsEverChosen) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<MediaSpan> media;
    std::vector<UnitSpan> units;
    std::vector<bool> inside(200, false);
    for (uint32_t at = random() % 5; at < 150; at += random() % 5) {
      const uint32_t end = at + 1 + random() % 12;
      media.push_back({at, end, {}});
      units.push_back({at, end});
      for (uint32_t depth = at + 1; depth < end; ++depth) inside[depth] = true;
      at = end;
    }
    for (uint32_t n = 0; n < 200; ++n) {
      uint32_t expected = n;
      while (inside[expected]) --expected;
      ASSERT_EQ(floor_to_unit(media, n), expected);
      ASSERT_EQ(floor_to_unit(units, n), expected);
    }
  }
}

TEST(Words, NegativeTokensAreFound) {
  std::vector<Token> tokens(1000, kTokenLimit - 1);
  EXPECT_TRUE(all_tokens_valid(tokens));
  EXPECT_TRUE(all_tokens_valid({}));
  EXPECT_EQ(first_bad_token(tokens), std::nullopt);
  tokens[700] = static_cast<Token>(-1);
  tokens[701] = kTokenLimit;
  EXPECT_FALSE(all_tokens_valid(tokens));
  EXPECT_EQ(first_bad_token(tokens), 700U);
}

TEST(Words, PlaceholdersUnderMediaMayBeAnything) {
  std::vector<Token> tokens(100, 5);
  const auto media = spans_of({item(10, 5), item(20, 1)});
  for (const uint32_t i : {10, 14, 20}) tokens[i] = static_cast<Token>(-1);
  EXPECT_EQ(first_bad_token(tokens, media), std::nullopt);
  tokens[15] = static_cast<Token>(-1);
  EXPECT_EQ(first_bad_token(tokens, media), 15U);
  tokens[9] = static_cast<Token>(-1);
  EXPECT_EQ(first_bad_token(tokens, media), 9U);
}

}  // namespace
}  // namespace stemma::key
