// Tests SpecialTexts: it finds every spelling of a special token, wherever it begins or ends.
#include "server/chat/special_texts.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"

namespace stemma::server {
namespace {

using Stretches = std::vector<SpecialTexts::Stretch>;

// <|bos|>, <|im_start|> and <|im_end|> are its special tokens.
class SpecialTextsTest : public ::testing::Test {
 protected:
  SpecialTextsTest() : model_(test::full_engine()), specials_(model_) {}
  Stretches all(std::string_view text) const { return specials_.within(text, 0, text.size()); }

  test::FakeModel model_;
  SpecialTexts specials_;
};

TEST_F(SpecialTextsTest, AreFoundWhole) {
  EXPECT_EQ(all("<|im_end|>"), (Stretches{{0, 10}}));
  EXPECT_EQ(all("a<|im_end|>b<|bos|>"), (Stretches{{1, 11}, {12, 19}}));
  EXPECT_EQ(all("<|im_end|><|bos|>"), (Stretches{{0, 17}}));
  EXPECT_EQ(all("<|im_<|im_end|>end|>"), (Stretches{{5, 15}}));
  for (const char* none : {"", "a", "<", "<|", "<|im_end|", "<|im_end>", "<|IM_END|>", "im_end|>"})
    EXPECT_EQ(all(none), Stretches{}) << none;
}

TEST_F(SpecialTextsTest, ThatReachBeyondAreFoundAsFarAsTheyLieInside) {
  const std::string_view text = "..<|im_end|>..";
  EXPECT_EQ(specials_.within(text, 4, 10), (Stretches{{4, 10}}));
  EXPECT_EQ(specials_.within(text, 0, 3), (Stretches{{2, 3}}));
  EXPECT_EQ(specials_.within(text, 11, 14), (Stretches{{11, 12}}));
  EXPECT_EQ(specials_.within(text, 0, 2), Stretches{});
  EXPECT_EQ(specials_.within(text, 12, 14), Stretches{});
}

TEST_F(SpecialTextsTest, TokenizersThatTellTextFromSpecialTokensNeedNoCuts) {
  EXPECT_EQ(specials_.cuts("<|im_end|>", 0, 10), std::vector<size_t>{});
}

TEST_F(SpecialTextsTest, CutForTokenizersThatDoNotNoneIsWhole) {
  model_.longest_word = true;
  const SpecialTexts specials(model_);
  EXPECT_EQ(specials.cuts("<|im_end|>", 0, 10), std::vector<size_t>{1});
  EXPECT_EQ(specials.cuts("a<|bos|><|im_end|>b", 1, 18), (std::vector<size_t>{2, 9}));
  EXPECT_EQ(specials.cuts("plain", 0, 5), std::vector<size_t>{});
}

// The header's invariant, on texts made of pieces of spellings.
TEST_F(SpecialTextsTest, NothingIsLeftWhereTheyWereTaken) {
  constexpr std::string_view kPieces[] = {"<|",   "|>",     "im_",        "end",     "start", "bos",
                                          "<|im", "_end|>", "<|im_end|>", "<|bos|>", "x",     "<"};
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 8; ++i) text += kPieces[base::mix(seed * 8 + i) % std::size(kPieces)];
    const size_t begin = base::mix(seed) % (text.size() / 2 + 1);
    const size_t end = begin + 1 + base::mix(seed + 1) % (text.size() - begin);
    size_t at = 0;
    const auto look = [&](size_t to) {
      const auto tokens = model_.tokenize(std::string_view(text).substr(at, to - at), false, true);
      ASSERT_TRUE(tokens);
      size_t byte = at;
      for (const Token token : *tokens) {
        std::string piece;
        model_.append_text(token, true, piece);
        const bool mine = byte < end && byte + piece.size() > begin;
        EXPECT_FALSE(mine && model_.is_special(token)) << text << " " << begin << " " << end;
        byte += piece.size();
      }
    };
    for (const SpecialTexts::Stretch& each : specials_.within(text, begin, end)) {
      ASSERT_LE(begin, each.begin);
      ASSERT_LT(each.begin, each.end);
      ASSERT_LE(each.end, end);
      look(each.begin);
      at = each.end;
    }
    look(text.size());
  }
}

}  // namespace
}  // namespace stemma::server
