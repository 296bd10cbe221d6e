// Prompts as texts: tokenized by the caller's tokenizer, shared where the tokens are equal.
#include "stemma/text_prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stemma::test {
namespace {

// A token for each letter.
struct Letters : Tokenizer {
  Result<void> encode(std::string_view text, std::vector<Token>& out) override {
    if (text.find('#') != text.npos) return Error(Errc::invalid_argument, "no such letter");
    for (char letter : text) out.push_back(static_cast<uint8_t>(letter));
    return {};
  }
  Result<void> decode(std::span<const Token> tokens, std::string& out) override {
    for (Token token : tokens) out.push_back(static_cast<char>(token));
    return {};
  }
};

class TextPrompts : public ::testing::Test {
 protected:
  using Bytes = std::vector<uint8_t>;

  Result<void> store(const TextPrompt& prompt, uint8_t fill = 1) const {
    return texts.store(prompt, Bytes(10, fill));
  }
  std::string found(const TextPrompt& prompt) const {
    auto lease = texts.find(prompt);
    EXPECT_TRUE(lease);
    return *lease ? *texts.text_of(**lease) : "";
  }
  uint64_t entries() const { return cache.statistics().entries; }

  WholePromptCache cache = *WholePromptCache::create({.min_tokens = 1});
  Letters letters;
  TextPromptCache texts{cache, letters};
};

TEST_F(TextPrompts, EqualTextsAreOneEntryAndDifferentOnesAreNot) {
  ASSERT_TRUE(store({.prompt = "hello", .system = "be brief", .model_configuration = "m1"}));
  ASSERT_TRUE(store({.prompt = "hello", .system = "be brief", .model_configuration = "m1"}));
  EXPECT_EQ(entries(), 1U);
  EXPECT_EQ(found({.prompt = "hello", .system = "be brief", .model_configuration = "m1"}),
            "be briefhello");
  EXPECT_EQ(found({.prompt = "other", .system = "be brief", .model_configuration = "m1"}), "");
  EXPECT_EQ(found({.prompt = "hello", .system = "be long", .model_configuration = "m1"}), "");
  EXPECT_EQ(found({.prompt = "hello", .model_configuration = "m1"}), "");
  EXPECT_EQ(found({.prompt = "hello", .system = "be brief", .model_configuration = "m2"}), "");
}

TEST_F(TextPrompts, SystemTextStoredOnceServesEveryPromptBehindIt) {
  ASSERT_TRUE(store({.system = "be brief. ", .model_configuration = "m1"}, 3));
  for (const char* prompt : {"hello", "what is a stemma?", ""}) {
    EXPECT_EQ(found({.prompt = prompt, .system = "be brief. ", .model_configuration = "m1"}),
              "be brief. ");
  }
  const auto encoded =
      texts.encode({.prompt = "hello", .system = "be brief. ", .model_configuration = "m1"});
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->system_tokens, 10U);
  EXPECT_EQ(encoded->tokens.size(), 15U);
}

TEST_F(TextPrompts, LongerConversationFindsTheShorterOne) {
  ASSERT_TRUE(store({.prompt = "hi. hello!", .system = "s", .model_configuration = "m1"}));
  EXPECT_EQ(found({.prompt = "hi. hello! and now?", .system = "s", .model_configuration = "m1"}),
            "shi. hello!");
}

TEST_F(TextPrompts, TokenizersAndMissingConfigurationsSayNo) {
  EXPECT_EQ(store({.prompt = "hello"}).error().code(), Errc::invalid_argument);
  EXPECT_EQ(texts.find({.prompt = "a#", .model_configuration = "m"}).error().code(),
            Errc::invalid_argument);
  EXPECT_EQ(texts.find({.prompt = "a", .system = "#", .model_configuration = "m"}).error().code(),
            Errc::invalid_argument);
  EXPECT_EQ(entries(), 0U);
}

// The tokenizer may use the cache, because no lock is held while it runs.
TEST_F(TextPrompts, TokenizerMayAskTheCache) {
  struct Asking : Letters {
    WholePromptCache* cache = nullptr;
    Result<void> encode(std::string_view text, std::vector<Token>& out) override {
      cache->statistics();
      return Letters::encode(text, out);
    }
  } asking;
  asking.cache = &cache;
  const TextPromptCache asked(cache, asking);
  ASSERT_TRUE(asked.store({.prompt = "hello", .model_configuration = "m"}, Bytes(10, 1)));
  EXPECT_TRUE(*asked.find({.prompt = "hello", .model_configuration = "m"}));
}

}  // namespace
}  // namespace stemma::test
