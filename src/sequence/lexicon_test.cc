#include "sequence/lexicon.h"

#include <gtest/gtest.h>

#include <random>

#include "support/text.h"

namespace stemma::sequence {
namespace {

using test::audio;
using test::image;
using test::tokens;
using Words = std::vector<uint32_t>;

Words words_of(const Text& text) { return {text.all().begin(), text.all().end()}; }

class LexiconTest : public ::testing::Test {
 protected:
  Text read(const Prompt& prompt) {
    Text text;
    const Result<void> done = lexicon.read(prompt, text);
    EXPECT_TRUE(done) << done.error().to_string();
    return text;
  }
  void expect_refused(const Prompt& prompt, Errc code, uint32_t value) {
    Text text = read(tokens(3).with(image(1, 0, 2)));
    const Result<void> done = lexicon.read(prompt, text);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), code);
    EXPECT_EQ(done.error().value(), value);
    EXPECT_EQ(text.length(), 0U);
    EXPECT_TRUE(text.all().empty() && text.media.empty() && text.spans.empty());
    EXPECT_EQ(lexicon.items(), 0U);
  }

  Lexicon lexicon;
};

TEST_F(LexiconTest, TokensAreTheirOwnWords) {
  const Text text = read(tokens(40));
  EXPECT_EQ(words_of(text), tokens(40).tokens);
  EXPECT_TRUE(text.words.empty());  // Not stored twice.
  EXPECT_EQ(text.floor(17), 17U);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, EmptyPromptIsAnEmptyText) {
  const Text text = read({});
  EXPECT_EQ(text.length(), 0U);
  EXPECT_TRUE(text.all().empty());
}

TEST_F(LexiconTest, EqualItemsAreEqualWordsWhateverTheirPlaceholdersSay) {
  test::Text one = tokens(20).with(image(7, 4, 6));
  test::Text two = one;
  for (uint32_t i = 4; i < 10; ++i) two.tokens[i] = 0xFFFF'0000U + i;  // No tokens at all.
  Text a = read(one);
  Text b = read(two);
  EXPECT_EQ(words_of(a), words_of(b));
  EXPECT_EQ(lexicon.items(), 1U);
  for (uint32_t i = 4; i < 10; ++i) EXPECT_TRUE(key::is_media_word(a.all()[i]));
  EXPECT_EQ(a.all()[3], one.tokens[3]);
  EXPECT_EQ(a.all()[10], one.tokens[10]);
  lexicon.release(a);
  EXPECT_EQ(lexicon.items(), 1U);
  lexicon.release(b);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, EveryPartOfAnItemsIdentityCounts) {
  const MediaItem item = image(7, 4, 6);
  Text a = read(tokens(20).with(item));
  MediaItem kind = item, digest = item, length = item, causal = item;
  kind.kind = MediaKind::video;
  digest.digest[15] ^= 1;
  length.length = 5;
  causal.causal = true;
  std::vector<Text> others;
  for (const MediaItem& other : {kind, digest, length, causal}) {
    others.push_back(read(tokens(20).with(other)));
    EXPECT_NE(others.back().all()[4], a.all()[4]);
  }
  EXPECT_EQ(lexicon.items(), 5U);
  for (Text& text : others) lexicon.release(text);
  lexicon.release(a);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, OverlappingItemsAreOneUnitAndTouchingOnesAreTwo) {
  Text mixed = read(tokens(20).with(image(1, 2, 4)).with(audio(2, 5, 4)));
  EXPECT_EQ(mixed.spans.size(), 1U);
  EXPECT_EQ(mixed.floor(8), 2U);
  EXPECT_EQ(mixed.floor(9), 9U);
  EXPECT_EQ(mixed.all()[2], mixed.all()[8]);
  Text touching = read(tokens(20).with(image(1, 2, 4)).with(audio(2, 6, 4)));
  EXPECT_EQ(touching.spans.size(), 2U);
  EXPECT_EQ(touching.floor(8), 6U);
  EXPECT_NE(touching.all()[2], mixed.all()[2]);
  EXPECT_EQ(lexicon.items(), 3U);
  lexicon.release(mixed);
  lexicon.release(touching);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, SameItemTwiceHasTwoReferences) {
  Text text = read(tokens(20).with(image(1, 2, 4)).with(image(1, 10, 4)));
  EXPECT_EQ(text.all()[2], text.all()[10]);
  lexicon.cut(text, 8);
  EXPECT_EQ(lexicon.items(), 1U);
  lexicon.cut(text, 2);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, CuttingForgetsWhatLiesBehind) {
  const test::Text prompt =
      tokens(20).with(image(1, 2, 4)).with(audio(2, 5, 4)).with(image(3, 12, 3));
  Text text = read(prompt);
  lexicon.cut(text, 25);  // Longer than it is: nothing happens.
  lexicon.cut(text, 20);
  EXPECT_EQ(text.length(), 20U);
  lexicon.cut(text, 13 - 1);  // The second unit goes, the first stays.
  EXPECT_EQ(text.length(), 12U);
  EXPECT_EQ(text.all().size(), 12U);
  EXPECT_EQ(text.media.size(), 2U);
  EXPECT_EQ(lexicon.items(), 1U);
  lexicon.cut(text, 2);
  EXPECT_EQ(words_of(text), tokens(2).tokens);
  EXPECT_TRUE(text.media.empty() && text.spans.empty() && text.media_numbers.empty());
  EXPECT_EQ(lexicon.items(), 0U);
  lexicon.cut(text, 0);
  EXPECT_EQ(text.length(), 0U);
}

TEST_F(LexiconTest, TokensAreAppendedWithAndWithoutMedia) {
  Text plain = read(tokens(5));
  ASSERT_TRUE(Lexicon::append(tokens(3, 2).tokens, plain));
  EXPECT_EQ(words_of(plain), (tokens(5) + tokens(3, 2)).tokens);
  Text text = read(tokens(5).with(image(1, 1, 4)));
  ASSERT_TRUE(Lexicon::append(tokens(3, 2).tokens, text));
  EXPECT_EQ(text.all().size(), 8U);
  EXPECT_EQ(text.all()[7], tokens(3, 2).tokens[2]);
  EXPECT_TRUE(key::is_media_word(text.all()[4]));
  // After the items are gone the words are the tokens again, and stay so.
  lexicon.cut(text, 1);
  ASSERT_TRUE(Lexicon::append(tokens(2, 3).tokens, text));
  EXPECT_EQ(words_of(text), (tokens(1) + tokens(2, 3)).tokens);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, BadTokensAreNamedAndChangeNothing) {
  test::Text bad = tokens(20);
  bad.tokens[13] = kTokenLimit;
  expect_refused(bad, Errc::invalid_argument, 13);
  bad.tokens[2] = 0xFFFF'FFFFU;
  expect_refused(bad.with(image(1, 0, 4)), Errc::invalid_argument, 13);

  Text text = read(tokens(5));
  const Result<void> refused = Lexicon::append(test::of({1, 2, kTokenLimit}).tokens, text);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
  EXPECT_EQ(refused.error().value(), 2U);
  EXPECT_EQ(text.length(), 5U);
}

TEST_F(LexiconTest, ImpossibleItemsAreNamedAndChangeNothing) {
  expect_refused(tokens(20).with(image(1, 4, 0)), Errc::invalid_argument, 0);
  expect_refused(tokens(20).with(image(1, 4, 2)).with(image(1, 19, 2)), Errc::invalid_argument, 1);
  expect_refused(tokens(20).with(image(1, 4, 2)).with(image(1, 3, 2)), Errc::invalid_argument, 1);
  expect_refused(tokens(20).with(test::media(MediaKind{77}, 1, 3, 2)), Errc::invalid_argument, 0);
}

TEST_F(LexiconTest, ReadingAgainGivesBackWhatWasThere) {
  Text text = read(tokens(20).with(image(1, 2, 4)));
  ASSERT_TRUE(lexicon.read(tokens(20).with(image(2, 2, 4)), text));
  EXPECT_EQ(lexicon.items(), 1U);
  ASSERT_TRUE(lexicon.read(tokens(7), text));
  EXPECT_EQ(lexicon.items(), 0U);
  EXPECT_EQ(words_of(text), tokens(7).tokens);
}

TEST_F(LexiconTest, CopyHasReferencesOfItsOwn) {
  Text text = read(tokens(20).with(image(1, 2, 4)).with(image(2, 10, 4)));
  Text copy;
  ASSERT_TRUE(lexicon.copy(text, 10, copy));
  EXPECT_EQ(copy.length(), 10U);
  EXPECT_EQ(words_of(copy), Words(text.all().begin(), text.all().begin() + 10));
  lexicon.release(text);
  EXPECT_EQ(lexicon.items(), 1U);
  EXPECT_TRUE(key::is_media_word(copy.all()[2]));
  lexicon.release(copy);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, NumbersMayBeHeldWithoutAText) {
  Text text = read(tokens(20).with(image(1, 2, 4)).with(image(2, 10, 4)));
  const uint32_t number = key::media_number(text.all()[2]);
  std::vector<uint32_t> held;
  ASSERT_TRUE(lexicon.hold(text, 10, held));
  EXPECT_EQ(held, Words{number});
  lexicon.release(text);
  EXPECT_EQ(lexicon.items(), 1U);
  // The number still means the same item.
  text = read(tokens(9).with(image(1, 0, 4)));
  EXPECT_EQ(key::media_number(text.all()[0]), number);
  lexicon.release(text);
  lexicon.drop(held);
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, PromptOfATextReadsAsTheSameText) {
  Text text = read(tokens(20).with(image(1, 2, 4)).with(audio(2, 5, 4)));
  Text again = read(text.prompt());
  EXPECT_EQ(words_of(again), words_of(text));
  EXPECT_EQ(text.prompt(9).media.size(), 2U);
  EXPECT_EQ(text.prompt(2).media.size(), 0U);
  lexicon.release(text);
  lexicon.release(again);
  EXPECT_EQ(lexicon.items(), 0U);
}

TEST_F(LexiconTest, ReferencesBalanceWhateverHappens) {
  std::mt19937 random(20261116);
  std::vector<Text> texts(6);
  for (uint32_t step = 0; step < 5000; ++step) {
    Text& text = texts[random() % texts.size()];
    switch (random() % 5) {
      case 0:
      case 1: {
        test::Text prompt = tokens(10 + random() % 30, random() % 3);
        for (uint32_t at = random() % 5; at + 5 < prompt.size(); at += 1 + random() % 9) {
          prompt = prompt.with(image(static_cast<uint8_t>(random() % 4), at, 1 + random() % 5));
        }
        if (random() % 8 == 0) prompt.tokens.push_back(kTokenLimit);
        const bool good = prompt.tokens.back() != kTokenLimit;
        EXPECT_EQ(lexicon.read(prompt, text).has_value(), good);
        break;
      }
      case 2: lexicon.cut(text, text.floor(random() % 40)); break;
      case 3: ASSERT_TRUE(Lexicon::append(tokens(random() % 9).tokens, text)); break;
      default: {
        Text& from = texts[random() % texts.size()];
        if (&from != &text) {
          ASSERT_TRUE(lexicon.copy(from, from.floor(random() % (from.length() + 1)), text));
        }
      }
    }
    EXPECT_EQ(text.all().size(), text.length());
    EXPECT_EQ(text.media_numbers.size(), text.spans.size());
  }
  for (Text& text : texts) lexicon.release(text);
  EXPECT_EQ(lexicon.items(), 0U);
}

}  // namespace
}  // namespace stemma::sequence
