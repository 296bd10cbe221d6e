// Answers under rules: which tokens are drawn, when answers end, and the hints to the retention
// policy.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "server/schedule/answer_rules.h"
#include "support/scheduler_rig.h"

namespace stemma::server::scheduler_rules {
namespace {

// Allows only some letters, and a limited number of them.
class Letters final : public AnswerRules {
 public:
  Letters(std::string allowed, size_t least, size_t most)
      : allowed_(std::move(allowed)), least_(least), most_(most) {}
  std::unique_ptr<TokenRules> begin() const override { return std::make_unique<Run>(*this); }

 private:
  class Run final : public TokenRules {
   public:
    explicit Run(const Letters& rules) : rules_(rules) {}
    bool allows(Token token) override {
      return said_ < rules_.most_ &&
             rules_.allowed_.find(static_cast<char>(token)) != std::string::npos;
    }
    std::shared_ptr<const constrain::TokenMask> mask() override {
      auto mask = std::make_shared<constrain::TokenMask>();
      mask->bits.assign(FakeModel::kVocabulary / 64 + 1, 0);
      for (Token token = 0; token < 256; ++token) {
        if (allows(token)) mask->bits[token >> 6U] |= uint64_t{1} << (token & 63U);
      }
      return mask;
    }
    void accept(Token) override { ++said_; }
    bool may_end() const override { return said_ >= rules_.least_; }
    bool must_end() const override { return said_ >= rules_.most_; }

   private:
    const Letters& rules_;
    size_t said_ = 0;
  };
  const std::string allowed_;
  const size_t least_;
  const size_t most_;
};

std::function<void(Generation&)> with(std::string allowed, size_t least, size_t most,
                                      float temperature = 0) {
  return [=](Generation& generation) {
    generation.rules = std::make_shared<Letters>(allowed, least, most);
    generation.sampling.temperature = temperature;
    generation.sampling.seed = 7;
  };
}

TEST(SchedulerRules, OnlyTokensThatAreAllowedAreSaid) {
  Rig rig;
  for (const float temperature : {0.0F, 1.0F}) {
    const auto ear = rig.ask(words(50, 1), 200, with("xyz", 60, 60, temperature));
    ASSERT_TRUE(ear->wait());
    EXPECT_EQ(ear->text().size(), 60U);
    EXPECT_EQ(ear->text().find_first_not_of("xyz"), std::string::npos) << ear->text();
    ASSERT_EQ(ear->ends.size(), 1U);
    EXPECT_EQ(ear->ends[0].cause, StopCause::eos);
    EXPECT_EQ(ear->ends[0].tokens.size(), 60U);
  }
  rig.expect_quiet();
}

TEST(SchedulerRules, AnAnswerDoesNotEndBeforeItMay) {
  Rig rig;
  // A prompt whose answer would soon end by itself.
  for (uint32_t seed = 1;; ++seed) {
    const std::string prompt = words(40, seed);
    const size_t length = rig.expected(prompt, 30).size();
    if (length == 0 || length >= 30) continue;
    std::string all;
    for (char c = ' '; c < 127; ++c) all += c;
    const auto ear = rig.ask(prompt, 500, with(all, length + 20, 400));
    ASSERT_TRUE(ear->wait());
    EXPECT_GE(ear->text().size(), length + 20);
    break;
  }
}

TEST(SchedulerRules, WhatIsBannedAndTheOnlyThingAllowedIsAnError) {
  Rig rig;
  const auto ear = rig.ask(words(20, 1), 50, [](Generation& generation) {
    with("a", 5, 5)(generation);
    generation.sampling.bias.emplace_back('a', -100.0F);
  });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->code, Errc::out_of_range);
  EXPECT_NE(ear->failure.find("logit_bias"), std::string::npos) << ear->failure;
  rig.expect_quiet();
}

TEST(SchedulerRules, TokensAndTextsThatEndATurnAreNotTold) {
  Rig rig;
  uint32_t seed = 1;
  while (rig.expected(words(50, seed), 40).size() <= 10) ++seed;
  const std::string prompt = words(50, seed);
  const std::string plain = rig.expected(prompt, 40);
  const auto by_token = rig.ask(prompt, 40, [&](Generation& generation) {
    generation.end_tokens = {static_cast<Token>(plain[5])};
  });
  ASSERT_TRUE(by_token->wait());
  EXPECT_EQ(by_token->text(), plain.substr(0, plain.find(plain[5])));
  EXPECT_EQ(by_token->ends[0].cause, StopCause::eos);
  EXPECT_EQ(by_token->ends[0].tokens.size(), by_token->text().size());
  const auto by_text = rig.ask(prompt, 40, [&](Generation& generation) {
    generation.stop = {"never said"};
    generation.end_texts = {plain.substr(4, 3)};
  });
  ASSERT_TRUE(by_text->wait());
  EXPECT_EQ(by_text->text(), plain.substr(0, plain.find(plain.substr(4, 3))));
  EXPECT_EQ(by_text->ends[0].cause, StopCause::eos);
  EXPECT_TRUE(by_text->ends[0].stop_text.empty());
}

TEST(SchedulerRules, SpecialTokensThatAreAskedForArePrinted) {
  Rig rig;
  const auto rules = [](bool print) {
    return [print](Generation& generation) {
      class Start final : public AnswerRules, public TokenRules {
       public:
        std::unique_ptr<TokenRules> begin() const override { return std::make_unique<Start>(); }
        bool allows(Token token) override { return token == FakeModel::kStart; }
        std::shared_ptr<const constrain::TokenMask> mask() override {
          auto mask = std::make_shared<constrain::TokenMask>();
          mask->bits.assign(FakeModel::kVocabulary / 64 + 1, 0);
          mask->bits[FakeModel::kStart >> 6U] |= uint64_t{1} << (FakeModel::kStart & 63U);
          return mask;
        }
        void accept(Token) override { said_ = true; }
        bool may_end() const override { return said_; }
        bool must_end() const override { return said_; }

       private:
        bool said_ = false;
      };
      generation.rules = std::make_shared<Start>();
      if (print) {
        generation.printed =
            std::make_shared<const std::vector<Token>>(std::vector<Token>{FakeModel::kStart});
      }
    };
  };
  const auto hidden = rig.ask(words(20, 1), 5, rules(false));
  const auto printed = rig.ask(words(20, 1), 5, rules(true));
  ASSERT_TRUE(hidden->wait() && printed->wait());
  EXPECT_EQ(hidden->text(), "");
  EXPECT_EQ(printed->text(), "<|im_start|>");
}

}  // namespace
}  // namespace stemma::server::scheduler_rules
