// Tests logprobs of prompts: a Scheduler reports the same for a prompt's tokens as for the same
// tokens in an answer.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/schedule/scheduler.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"

namespace stemma::server {
namespace {

using test::FakeModel;

class LogprobEar final : public Listener {
 public:
  void prompt(std::vector<TokenLogprob>&& logprobs) override {
    EXPECT_TRUE(answer.empty());
    EXPECT_TRUE(of_prompt.empty()) << "told twice";
    of_prompt = std::move(logprobs);
  }
  void piece(Piece piece) override {
    for (TokenLogprob& each : piece.logprobs) answer.push_back(std::move(each));
  }
  void ended(ChoiceEnd) override { ++ends; }
  void done(const Summary& said) override {
    summary = said;
    over_.set_value(true);
  }
  void failed(const Error&, const std::string&, bool) override { over_.set_value(false); }
  bool wait() { return over_.get_future().get(); }

  std::vector<TokenLogprob> of_prompt;
  std::vector<TokenLogprob> answer;
  Summary summary;
  uint32_t ends = 0;

 private:
  std::promise<bool> over_;
};

class PromptLogprobs : public ::testing::TestWithParam<test::EngineKind> {
 protected:
  PromptLogprobs() : model_(GetParam().options, 16) {
    std::string why;
    SchedulerOptions options;
    options.cache.logits_bytes = 1U << 20U;
    scheduler_ = Scheduler::create(model_, options, why);
    EXPECT_NE(scheduler_, nullptr) << why;
  }
  std::shared_ptr<LogprobEar> ask(const std::vector<Token>& prompt, uint32_t max_tokens,
                                  bool of_prompt, uint32_t choices = 1) {
    Generation generation;
    generation.prompt = prompt;
    generation.max_tokens = max_tokens;
    generation.sampling.temperature = 0;
    generation.sampling.ignore_eos = true;
    generation.top_logprobs = 2;
    generation.prompt_logprobs = of_prompt;
    generation.choices = choices;
    auto ear = std::make_shared<LogprobEar>();
    EXPECT_TRUE(scheduler_->submit(std::move(generation), ear));
    EXPECT_TRUE(ear->wait());
    EXPECT_EQ(ear->ends, choices);
    return ear;
  }

  FakeModel model_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_P(PromptLogprobs, AreThoseOfTheSameTokensAsAnAnswer) {
  std::vector<Token> words = *model_.tokenize("once upon a time in a library", true, true);
  const size_t first = words.size();
  const auto said = ask(words, 40, false);
  EXPECT_TRUE(said->of_prompt.empty());
  ASSERT_EQ(said->answer.size(), 40U);
  for (const TokenLogprob& each : said->answer) words.push_back(each.chosen.token);
  // For cached tokens, for tokens computed again after a failed pass, and with and without an
  // answer.
  for (const uint32_t failing : {0U, 1U}) {
    for (const uint32_t tokens : {0U, 3U}) {
      model_.failing_passes = failing;
      const auto ear = ask(words, tokens, true);
      EXPECT_EQ(ear->answer.size(), tokens);
      EXPECT_EQ(ear->summary.cached_tokens, 0U);
      ASSERT_EQ(ear->of_prompt.size(), words.size());
      EXPECT_TRUE(std::isnan(ear->of_prompt[0].chosen.logprob));
      EXPECT_TRUE(ear->of_prompt[0].others.empty());
      for (size_t i = 0; i < words.size(); ++i) {
        EXPECT_EQ(ear->of_prompt[i].chosen.token, words[i]);
        std::string bytes;
        model_.append_text(words[i], true, bytes);
        EXPECT_EQ(ear->of_prompt[i].bytes, bytes);
        if (i == 0) continue;
        EXPECT_LE(ear->of_prompt[i].chosen.logprob, 0.0F);
        ASSERT_EQ(ear->of_prompt[i].others.size(), 2U);
        if (i < first) continue;
        EXPECT_EQ(ear->of_prompt[i].chosen.logprob, said->answer[i - first].chosen.logprob) << i;
        EXPECT_EQ(ear->of_prompt[i].others[1].first.token,
                  said->answer[i - first].others[1].first.token);
      }
    }
  }
  // The prompt is kept like any other.
  EXPECT_GE(ask(words, 1, false)->summary.cached_tokens, words.size() - 1);
}

TEST_P(PromptLogprobs, AreToldOnceForAllChoicesAndForOneToken) {
  EXPECT_EQ(ask({70}, 2, true)->of_prompt.size(), 1U);
  EXPECT_EQ(ask({70, 71}, 2, true, 5)->of_prompt.size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PromptLogprobs, ::testing::ValuesIn(test::every_engine()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace stemma::server
