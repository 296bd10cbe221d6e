// Tests joined answers: several prompts appear to the client as one request, and end once.
#include "server/schedule/joined_answers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace stemma::server::joined_answers_test {
namespace {

struct Heard final : Listener {
  void begun(const AnswerBegun&) override { said += "begun;"; }
  void piece(Piece piece) override {
    said += std::to_string(piece.choice) + ":" + piece.text + ";";
    logprobs += piece.logprobs.size();
  }
  void ended(ChoiceEnd end) override { said += std::to_string(end.choice) + " ended;"; }
  void done(const Summary& all) override {
    said += "done;";
    summary = all;
  }
  void failed(const Error&, const std::string& message, bool) override {
    said += "failed " + message + ";";
  }
  std::string said;
  size_t logprobs = 0;
  Summary summary;
};

Piece said(uint32_t choice, std::string text) {
  Piece piece;
  piece.choice = choice;
  piece.text = std::move(text);
  return piece;
}

ChoiceEnd end_of(uint32_t choice) {
  ChoiceEnd end;
  end.choice = choice;
  return end;
}

Summary summary(uint32_t tokens, uint64_t ns) {
  Summary out;
  out.prompt_tokens = tokens;
  out.generated_tokens = 2;
  out.report.reused_tokens = tokens / 2;
  out.timings.generated_ns = ns;
  return out;
}

class JoinedAnswersTest : public ::testing::Test {
 protected:
  std::shared_ptr<JoinedAnswers> join(uint32_t prompts, uint32_t choices,
                                      std::vector<std::string> echoes = {}) {
    return std::make_shared<JoinedAnswers>(
        heard_, JoinedAnswers::Options{
                    .prompts = prompts,
                    .choices = choices,
                    .echoes = std::move(echoes),
                    .cancel = [this](uint64_t number) { cancelled_.push_back(number); }});
  }
  const std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  std::vector<uint64_t> cancelled_;
};

TEST_F(JoinedAnswersTest, ChoicesAreNumberedByPromptAndSummariesAddedUp) {
  const auto joined = join(2, 2);
  const auto a = joined->member(0);
  const auto b = joined->member(1);
  b->begun({});
  a->begun({});
  b->piece(said(1, "x"));
  a->piece(said(0, "y"));
  a->ended(end_of(0));
  b->ended(end_of(0));
  a->done(summary(10, 5));
  EXPECT_EQ(heard_->said, "begun;3:x;0:y;0 ended;2 ended;");
  b->done(summary(7, 9));
  EXPECT_TRUE(heard_->said.ends_with("done;"));
  EXPECT_EQ(heard_->summary.prompt_tokens, 17U);
  EXPECT_EQ(heard_->summary.generated_tokens, 4U);
  EXPECT_EQ(heard_->summary.report.reused_tokens, 8U);
  EXPECT_EQ(heard_->summary.timings.generated_ns, 9U);
}

TEST_F(JoinedAnswersTest, EachChoiceBeginsWithTheEchoOfItsPrompt) {
  const auto joined = join(2, 1, {"one ", "two "});
  const auto a = joined->member(0);
  const auto b = joined->member(1);
  b->prompt({TokenLogprob{}});
  b->piece(said(0, "B"));
  b->piece(said(0, "B"));
  a->ended(end_of(0));
  EXPECT_EQ(heard_->said, "1:two ;1:B;1:B;0:one ;0 ended;");
  EXPECT_EQ(heard_->logprobs, 1U);
}

TEST_F(JoinedAnswersTest, OneThatFailsEndsAllAndIsToldOnce) {
  const auto joined = join(3, 1);
  const auto a = joined->member(0);
  const auto b = joined->member(1);
  const auto c = joined->member(2);
  for (const uint64_t number : {1, 2, 3}) joined->submitted(number);
  b->failed(Error(Errc::busy, "busy"), "no room", true);
  EXPECT_EQ(cancelled_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(heard_->said, "");
  a->failed(Error(Errc::stale, "cancelled"), "cancelled", false);
  c->done(summary(1, 1));
  EXPECT_EQ(heard_->said, "failed no room;");
}

TEST_F(JoinedAnswersTest, OneThatIsRefusedEndsThoseBeforeIt) {
  const auto joined = join(3, 1);
  const auto a = joined->member(0);
  joined->submitted(1);
  joined->refused(2, Error(Errc::busy, "the queue is full"), true);
  EXPECT_EQ(cancelled_, std::vector<uint64_t>{1});
  EXPECT_EQ(heard_->said, "");
  a->failed(Error(Errc::stale, "cancelled"), "cancelled", false);
  EXPECT_EQ(heard_->said, "failed the queue is full;");
  // The same if those before it have already ended.
  heard_->said.clear();
  const auto late = join(2, 1);
  late->member(0)->done(summary(1, 1));
  late->refused(1, Error(Errc::busy, "full"), true);
  EXPECT_EQ(heard_->said, "failed full;");
}

TEST_F(JoinedAnswersTest, WhatIsSubmittedAfterACancelIsCancelled) {
  const auto joined = join(2, 1);
  joined->submitted(1);
  joined->cancel();
  joined->submitted(2);
  EXPECT_EQ(cancelled_, (std::vector<uint64_t>{1, 2}));
}

}  // namespace
}  // namespace stemma::server::joined_answers_test
