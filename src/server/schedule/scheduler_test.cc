// Tests Scheduler, over a model whose answers depend on every word of the prompt: what is computed,
// what is reused, which requests wait, and what happens to failed and cancelled ones.
#include "server/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "support/engine_kinds.h"
#include "support/environment.h"
#include "support/fake_model.h"
#include "support/scheduler_rig.h"

namespace stemma::server {

void PrintTo(StopCause cause, std::ostream* out) { *out << static_cast<uint32_t>(cause); }

namespace {

using test::EngineKind;

// ---- Answers ------------------------------------------------------------------------------------

class EveryModel : public ::testing::TestWithParam<EngineKind> {};

TEST_P(EveryModel, AnswersAsIfEverythingHadBeenComputed) {
  Rig rig(GetParam().options);
  const std::string system = words(120, 1);
  for (uint32_t user = 0; user < 6; ++user) {
    std::string talk = system;
    for (uint32_t turn = 0; turn < 3; ++turn) {
      talk += words(20, 10 + user * 10 + turn);
      const auto ear = rig.ask(talk, 25);
      ASSERT_TRUE(ear->wait());
      EXPECT_EQ(ear->failure, "");
      EXPECT_EQ(ear->text(), rig.expected(talk, 25));
      talk += ear->text();
    }
  }
  rig.expect_quiet();
}

TEST_P(EveryModel, ManyAtOnceGetTheirOwnAnswers) {
  Rig rig(GetParam().options);
  const std::string system = words(60, 1);
  std::vector<std::string> prompts;
  std::vector<std::shared_ptr<Ear>> ears;
  rig.together([&] {
    for (uint32_t i = 0; i < 24; ++i) {
      prompts.push_back(system + words(10 + i * 3, 100 + i % 8));
      ears.push_back(
          rig.ask(prompts.back(), 20, [&](Generation& g) { g.choices = i % 5 == 0 ? 3 : 1; }));
    }
  });
  for (uint32_t i = 0; i < 24; ++i) {
    ASSERT_TRUE(ears[i]->wait());
    ASSERT_EQ(ears[i]->failure, "");
    for (uint32_t choice = 0; choice < (i % 5 == 0 ? 3U : 1U); ++choice) {
      EXPECT_EQ(ears[i]->text(choice), rig.expected(prompts[i], 20)) << i << ", " << choice;
    }
  }
  rig.expect_quiet();
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryModel, ::testing::ValuesIn(test::every_engine()),
                         [](const auto& kind) { return kind.param.name; });

TEST(Scheduler, SecondUserComputesOnlyWhatDiffers) {
  Rig rig;
  const std::string system = words(200, 1);
  ASSERT_TRUE(rig.ask(system + "one", 5)->wait());
  const auto ear = rig.ask(system + "two", 5);
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->summary.cached_tokens, 201U) << "with the BOS";
  EXPECT_EQ(ear->summary.report.evaluated_tokens, 3U);
  EXPECT_EQ(ear->summary.prompt_tokens, 204U);
  EXPECT_EQ(rig.scheduler->stats().cached_tokens, 201U);
}

TEST(Scheduler, SaltedPromptsShareNothingWithOthers) {
  Rig rig;
  const std::string system = words(200, 1);
  const auto salted = [](Generation& g) { g.salt = "somebody's own salt"; };
  ASSERT_TRUE(rig.ask(system, 5)->wait());
  const auto first = rig.ask(system, 5, salted);
  ASSERT_TRUE(first->wait());
  EXPECT_EQ(first->summary.cached_tokens, 0U);
  const auto second = rig.ask(system, 5, salted);
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(second->summary.cached_tokens, 200U);
}

TEST(Scheduler, PromptThatDoesNotWantReuseComputesEverything) {
  Rig rig;
  ASSERT_TRUE(rig.ask(words(100, 1), 5)->wait());
  const auto ear = rig.ask(words(100, 1), 5, [](Generation& g) { g.reuse = false; });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->summary.cached_tokens, 0U);
}

TEST(Scheduler, ChoicesEvaluateThePromptOnce) {
  Rig rig;
  const auto ear = rig.ask(words(100, 1), 12, [](Generation& g) {
    g.choices = 4;
    g.sampling.temperature = 1;
    g.sampling.seed = 7;
  });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->ends.size(), 4U);
  EXPECT_EQ(rig.scheduler->stats().evaluated_tokens, 101U);
  EXPECT_NE(ear->text(0), ear->text(1));
  // More choices than sequences: the rest waits, and finds the prompt.
  const auto many = rig.ask(words(100, 2), 6, [](Generation& g) {
    g.choices = 11;
    g.sampling.temperature = 1;
    g.sampling.seed = 7;
  });
  ASSERT_TRUE(many->wait());
  EXPECT_EQ(many->ends.size(), 11U);
  EXPECT_LE(rig.scheduler->stats().evaluated_tokens, 101U + 101U + 10U);
  rig.expect_quiet();
}

TEST(Scheduler, ChoicesThatDoNotWantReuseLeaveNothingToOthers) {
  SchedulerOptions options;
  options.cache.logits_bytes = 1U << 20U;
  Rig rig(test::full_engine(), options);
  const std::string prompt = words(100, 1);
  const auto many = rig.ask(prompt, 12, [](Generation& g) {
    g.choices = 7;  // More choices than sequences.
    g.reuse = false;
  });
  ASSERT_TRUE(many->wait());
  for (uint32_t choice = 0; choice < 7; ++choice) {
    EXPECT_EQ(many->text(choice), rig.expected(prompt, 12));
  }
  const auto contents = rig.scheduler->cache().contents();
  ASSERT_TRUE(contents.has_value());
  EXPECT_TRUE(contents->empty());
  const auto other = rig.ask(prompt, 5);
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(other->summary.cached_tokens, 0U);
  rig.expect_quiet();
}

// The choices of a large request queue one by one, so that other requests get in between.
TEST(Scheduler, RequestWithManyChoicesDoesNotHoldOthersUp) {
  Rig rig;
  constexpr uint32_t kChoices = 40;
  const auto long_answer = [](Generation& g) { g.sampling.ignore_eos = true; };
  std::vector<std::shared_ptr<Ear>> others;
  std::vector<size_t>
      ended_before;  // Choices of the large request that ended before another one's first text.
  ended_before.reserve(3);
  std::shared_ptr<Ear> large;
  rig.together([&] {
    large = rig.ask(words(50, 1), 10, [&](Generation& g) {
      long_answer(g);
      g.choices = kChoices;
    });
    // The others arrive while the first choices run and hold all sequences.
    large->at_piece(10, [&] {
      for (uint32_t i = 0; i < 3; ++i) {
        others.push_back(rig.ask(words(50, 10 + i), 10, long_answer));
        others.back()->on_text = [&] { ended_before.push_back(large->ends.size()); };
      }
    });
  });
  ASSERT_TRUE(large->wait());
  ASSERT_EQ(others.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(others[i]->wait());
    EXPECT_EQ(others[i]->text(), rig.expected(words(50, 10 + i), 10));
  }
  ASSERT_EQ(ended_before.size(), 3U);
  const size_t sequences = test::full_engine().sequences;
  for (const size_t ended : ended_before) EXPECT_LE(ended, 2 * sequences);
  ASSERT_EQ(large->ends.size(), kChoices);
  for (uint32_t choice = 0; choice < kChoices; ++choice) {
    EXPECT_EQ(large->text(choice), rig.expected(words(50, 1), 10)) << choice;
  }
  rig.expect_quiet();
}

// A waiting request is planned again when another one has ended, not in every pass.
TEST(Scheduler, RequestsThatWaitAreNotTriedInEveryPass) {
  for (const uint32_t context : {1024U, 256U}) {  // No free sequence; no room.
    FakeSequences::Options engine = test::full_engine();
    engine.context_tokens = context;
    Rig rig(engine);
    constexpr uint32_t kRequests = 12;
    std::vector<std::shared_ptr<Ear>> ears;
    rig.together([&] {
      for (uint32_t i = 0; i < kRequests; ++i) {
        ears.push_back(
            rig.ask(words(80, i), 30, [](Generation& g) { g.sampling.ignore_eos = true; }));
      }
    });
    for (uint32_t i = 0; i < kRequests; ++i) {
      ASSERT_TRUE(ears[i]->wait());
      EXPECT_EQ(ears[i]->failure, "");
    }
    const SequenceStats stats = rig.scheduler->cache().stats();
    EXPECT_LE(stats.outcomes[static_cast<size_t>(Outcome::refused)], kRequests);
    rig.expect_quiet();
  }
}

// The same with two such requests, and while the queue is full: only requests that have not begun
// count as waiting.
TEST(Scheduler, ChoicesThatWaitTakeNoPlaceInTheQueue) {
  SchedulerOptions options;
  options.queue = 2;
  Rig rig(test::full_engine(), options);
  std::vector<std::shared_ptr<Ear>> ears;
  std::vector<std::string> prompts;
  const auto many = [&](uint32_t seed) {
    prompts.push_back(words(50, seed));
    return rig.ask(prompts.back(), 8, [](Generation& g) { g.choices = 20; });
  };
  rig.together([&] {
    ears.push_back(many(1));
    // From now on its other choices wait; two more requests still fit into the queue.
    ears.front()->at_piece(10, [&] {
      ears.push_back(many(2));
      ears.push_back(many(3));
      Generation one_more;
      one_more.prompt = {1};
      EXPECT_EQ(rig.scheduler->submit(one_more, std::make_shared<Ear>()).error().code(),
                Errc::busy);
    });
  });
  ASSERT_TRUE(ears.front()->wait());
  ASSERT_EQ(ears.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(ears[i]->wait());
    ASSERT_EQ(ears[i]->failure, "");
    for (uint32_t choice = 0; choice < 20; ++choice) {
      EXPECT_EQ(ears[i]->text(choice), rig.expected(prompts[i], 8)) << i << ", " << choice;
    }
  }
  rig.expect_quiet();
}

TEST(Scheduler, ChoicesThatWaitEndWithTheirRequest) {
  Rig rig;
  std::shared_ptr<Ear> ear;
  rig.together([&] {
    ear = rig.ask(words(50, 1), 10, [](Generation& g) { g.choices = 40; });
    ear->at_piece(10, [&] { rig.scheduler->cancel(rig.number); });
  });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->code, Errc::stale);
  EXPECT_LT(ear->ends.size(), 40U);
  const auto next = rig.ask(words(50, 2), 10);
  ASSERT_TRUE(next->wait());
  EXPECT_EQ(next->text(), rig.expected(words(50, 2), 10));
  rig.expect_quiet();
}

TEST(Scheduler, AnswerWithoutAPossibleTokenFailsInPlainWords) {
  Rig rig;
  const auto ear = rig.ask("abc", 5, [](Generation& g) {
    for (Token token = 0; token < FakeModel::kVocabulary; ++token) {
      g.sampling.bias.emplace_back(token, -100.0F);
    }
  });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->failure, "no token may follow: logit_bias bans all that the model could say");
  rig.expect_quiet();
}

TEST(Scheduler, StopTextEndsTheAnswerAndIsNoPartOfIt) {
  Rig rig;
  uint32_t seed = 3;
  while (rig.expected(words(50, seed), 30).size() <= 12) ++seed;
  const std::string prompt = words(50, seed);
  const std::string full = rig.expected(prompt, 30);
  const std::string stop = full.substr(8, 3);
  const auto ear = rig.ask(prompt, 30, [&](Generation& g) { g.stop = {stop}; });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->text(), full.substr(0, full.find(stop)));
  ASSERT_EQ(ear->ends.size(), 1U);
  EXPECT_EQ(ear->ends[0].cause, StopCause::stop_text);
  EXPECT_EQ(ear->ends[0].stop_text, stop);
}

TEST(Scheduler, AnswerIsAsLongAsTheContextAllows) {
  FakeSequences::Options engine = test::full_engine();
  engine.context_tokens = 128;
  Rig rig(engine);
  const auto ear =
      rig.ask(words(100, 1), 0xFFFF'FFFFU, [](Generation& g) { g.sampling.ignore_eos = true; });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->ends.at(0).cause, StopCause::length);
  EXPECT_EQ(ear->summary.generated_tokens, 27U);
  rig.expect_quiet();
}

TEST(Scheduler, NothingButThePromptIsComputedForNoTokens) {
  Rig rig;
  const auto ear = rig.ask(words(100, 1), 0);
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->text(), "");
  EXPECT_EQ(ear->summary.generated_tokens, 0U);
  const auto next = rig.ask(words(100, 1) + "x", 1);
  ASSERT_TRUE(next->wait());
  EXPECT_EQ(next->summary.cached_tokens, 101U);
}

TEST(Scheduler, LogprobsComeWithTheirTokens) {
  Rig rig;
  const auto ear = rig.ask(words(50, 3), 10, [](Generation& g) {
    g.top_logprobs = 3;
    g.sampling.ignore_eos = true;
  });
  ASSERT_TRUE(ear->wait());
  ASSERT_EQ(ear->logprobs.size(), 10U);
  std::string said;
  for (const TokenLogprob& each : ear->logprobs) {
    said += each.bytes;
    EXPECT_EQ(each.others.size(), 3U);
    EXPECT_LE(each.chosen.logprob, 0.0F);
  }
  EXPECT_EQ(said, ear->text());
}

TEST(Scheduler, KeptLogitsAnswerWithoutAForwardPass) {
  SchedulerOptions options;
  options.cache.logits_bytes = 1U << 20U;
  Rig rig(test::full_engine(), options);
  const std::string prompt = words(80, 5);
  ASSERT_TRUE(rig.ask(prompt, 1)->wait());
  const uint64_t passes = rig.scheduler->stats().passes;
  const auto again = rig.ask(prompt, 1);
  ASSERT_TRUE(again->wait());
  EXPECT_EQ(again->text(), rig.expected(prompt, 1));
  EXPECT_EQ(rig.scheduler->stats().passes, passes);
  const auto longer = rig.ask(prompt, 20);
  ASSERT_TRUE(longer->wait());
  EXPECT_EQ(longer->text(), rig.expected(prompt, 20));
}

TEST(Scheduler, PromptThatIsTheSameTextInOtherTokensIsToldSo) {
  // The fake's tokens are bytes, so use special tokens: as tokens, and spelled out.
  Rig rig;
  const auto ear =
      rig.ask("abc", 8, [](Generation& g) { g.sampling.bias = {{FakeModel::kStart, 100.0F}}; });
  ASSERT_TRUE(ear->wait());
  Generation next;
  next.prompt = *rig.model.tokenize("abc<|im_start|><|im_start|>", true, false);
  next.max_tokens = 1;
  auto other = std::make_shared<Ear>();
  ASSERT_TRUE(rig.scheduler->submit(std::move(next), other));
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(other->summary.retokenised_at, 4U);
  EXPECT_EQ(rig.scheduler->stats().retokenised, 1U);
  // The next turn matches beyond that place, as it was sent: the difference causes no computation.
  Generation third;
  third.prompt = *rig.model.tokenize("abc<|im_start|><|im_start|> and more", true, false);
  third.max_tokens = 1;
  auto last = std::make_shared<Ear>();
  ASSERT_TRUE(rig.scheduler->submit(std::move(third), last));
  ASSERT_TRUE(last->wait());
  EXPECT_GE(last->summary.cached_tokens, 28U);
  EXPECT_EQ(last->summary.retokenised_at, 0U);
  EXPECT_EQ(rig.scheduler->stats().retokenised, 1U);
}

// ---- Room ---------------------------------------------------------------------------------------

TEST(Scheduler, AnswersThatDoNotFitTogetherGiveWayAndGoOn) {
  FakeSequences::Options engine = test::full_engine();
  engine.context_tokens = 300;
  SchedulerOptions options;
  options.answer_tokens = 8;
  Rig rig(engine, options);
  std::vector<std::shared_ptr<Ear>> ears;
  rig.together([&] {
    for (uint32_t i = 0; i < 4; ++i) {
      ears.push_back(
          rig.ask(words(50, i), 100, [](Generation& g) { g.sampling.ignore_eos = true; }));
    }
  });
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(ears[i]->wait()) << i;
    EXPECT_EQ(ears[i]->failure, "");
    EXPECT_EQ(ears[i]->summary.generated_tokens, 100U);
  }
  EXPECT_GT(rig.scheduler->stats().suspensions, 0U);
  rig.expect_quiet();
}

// A window's cells may run out though the books have room.
TEST(Scheduler, EngineThatFindsNoRoomForAllServesThemInTurn) {
  Rig rig;
  rig.model.most_sequences = 1;
  std::vector<std::shared_ptr<Ear>> ears;
  rig.together([&] {
    for (uint32_t i = 0; i < 4; ++i)
      ears.push_back(rig.ask(words(50, i), 20, [](Generation& g) { g.choices = 2; }));
  });
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(ears[i]->wait()) << i;
    EXPECT_EQ(ears[i]->failure, "");
    EXPECT_EQ(ears[i]->text(0), rig.expected(words(50, i), 20));
    EXPECT_EQ(ears[i]->text(1), rig.expected(words(50, i), 20));
  }
  rig.expect_quiet();
}

TEST(Scheduler, RefusesWhatCannotBe) {
  Rig rig;
  const auto refused = [&](Generation generation) {
    const auto answer = rig.scheduler->submit(std::move(generation), std::make_shared<Ear>());
    return answer ? Errc{} : answer.error().code();
  };
  Generation empty;
  EXPECT_EQ(refused(empty), Errc::invalid_argument);
  Generation wild;
  wild.prompt = {1, FakeModel::kVocabulary};
  EXPECT_EQ(refused(wild), Errc::invalid_argument);
  Generation none;
  none.prompt = {1};
  none.choices = 0;
  EXPECT_EQ(refused(none), Errc::invalid_argument);
  Generation much;
  much.prompt.assign(rig.scheduler->cache().stats().context_tokens, 1);
  EXPECT_EQ(refused(much), Errc::out_of_range);
}

TEST(Scheduler, QueueHasABound) {
  SchedulerOptions options;
  options.queue = 3;
  Rig rig(test::full_engine(), options);
  std::vector<std::shared_ptr<Ear>> ears;
  rig.together([&] {
    for (uint32_t i = 0; i < 20; ++i) {
      Generation generation;
      generation.prompt = *rig.model.tokenize(words(200, i), true, true);
      generation.max_tokens = 4;
      auto ear = std::make_shared<Ear>();
      const auto taken = rig.scheduler->submit(std::move(generation), ear);
      EXPECT_EQ(taken.has_value(), i < 3) << i;
      if (taken) {
        ears.push_back(ear);
      } else {
        EXPECT_EQ(taken.error().code(), Errc::busy);
      }
    }
  });
  for (const auto& ear : ears) ASSERT_TRUE(ear->wait());
  EXPECT_EQ(rig.scheduler->stats().refused, 17U);
  rig.expect_quiet();
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST(Scheduler, CancelledRequestsGiveTheirSequenceBack) {
  Rig rig;
  std::shared_ptr<Ear> ear;
  rig.together([&] {
    ear = rig.ask(words(50, 1), 0xFFFFU, [](Generation& g) { g.sampling.ignore_eos = true; });
    ear->on_text = [&] { rig.scheduler->cancel(rig.number); };
  });
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->code, Errc::stale);
  rig.scheduler->cancel(rig.number);
  rig.scheduler->cancel(12345);
  rig.expect_quiet();
  EXPECT_EQ(rig.scheduler->stats().cancelled, 1U);
  EXPECT_EQ(rig.scheduler->stats().failed, 0U);
  // The next request reuses what it had computed.
  const auto next = rig.ask(words(50, 1) + "!", 1);
  ASSERT_TRUE(next->wait());
  EXPECT_EQ(next->summary.cached_tokens, 51U);
  EXPECT_EQ(ear->times_over(), 1U);
}

TEST(Scheduler, WaitingRequestsCanBeCancelled) {
  FakeSequences::Options engine = test::full_engine();
  engine.sequences = 1;
  Rig rig(engine);
  std::shared_ptr<Ear> first, second;
  rig.together([&] {
    first = rig.ask(words(50, 1), 200, [](Generation& g) { g.sampling.ignore_eos = true; });
    second = rig.ask(words(50, 2), 5);
    first->on_text = [&] { rig.scheduler->cancel(rig.number); };
  });
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(second->code, Errc::stale);
  ASSERT_TRUE(first->wait());
  EXPECT_EQ(first->failure, "");
  rig.expect_quiet();
}

TEST(Scheduler, FailedPassIsTriedAgain) {
  Rig rig;
  rig.model.failing_passes = 1;
  const auto ear = rig.ask(words(150, 1), 10);
  const auto other = rig.ask(words(150, 2), 10);
  ASSERT_TRUE(ear->wait());
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(ear->text(), rig.expected(words(150, 1), 10));
  EXPECT_EQ(other->text(), rig.expected(words(150, 2), 10));
  EXPECT_EQ(rig.scheduler->stats().failed_passes, 1U);
  rig.expect_quiet();
}

TEST(Scheduler, ThoseWhoLostAPassGoOnInTheirOldOrder) {
  FakeSequences::Options engine = test::full_engine();
  engine.context_tokens = 1U << 20U;  // None of them ends during the test.
  Rig rig(engine);
  rig.model.pass_us = 5'000;
  std::vector<std::shared_ptr<Ear>> ears;
  for (uint32_t i = 0; i < 4; ++i) {
    ears.push_back(
        rig.ask(words(10, i), 0xFFFFU, [](Generation& g) { g.sampling.ignore_eos = true; }));
    ASSERT_TRUE(ears.back()->wait_for_text());
  }
  const auto order = [&] {
    std::vector<uint64_t> numbers;
    for (const Scheduler::Running& each : rig.scheduler->running()) numbers.push_back(each.request);
    return numbers;
  };
  // The state of a pass is published at its end.
  while (order().size() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<uint64_t> before = order();
  rig.model.failing_passes = 1;
  while (rig.scheduler->stats().failed_passes == 0 || order().size() < 4)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(order(), before);
  rig.model.pass_us = 0;
  rig.scheduler->stop();
}

TEST(Scheduler, PassThatFailsAgainAndAgainFailsItsRequestsOnly) {
  Rig rig;
  rig.model.failing_passes = 2;
  const auto ear = rig.ask(words(50, 1), 10);
  ASSERT_TRUE(ear->wait());
  EXPECT_NE(ear->failure, "");
  const auto next = rig.ask(words(50, 1), 10);
  ASSERT_TRUE(next->wait());
  EXPECT_EQ(next->text(), rig.expected(words(50, 1), 10));
  EXPECT_EQ(rig.scheduler->stats().failed, 1U);
  rig.expect_quiet();
}

TEST(Scheduler, DrainWaitsForRequestsAndTakesNoMore) {
  Rig rig;
  rig.model.pass_us = 1'000;
  const auto ear = rig.ask(words(50, 1), 50, [](Generation& g) { g.sampling.ignore_eos = true; });
  EXPECT_TRUE(rig.scheduler->drain(30'000'000'000));
  EXPECT_EQ(ear->times_over(), 1U);
  EXPECT_EQ(ear->summary.generated_tokens, 50U);
  Generation late;
  late.prompt = {1};
  EXPECT_FALSE(rig.scheduler->submit(late, std::make_shared<Ear>()));
}

TEST(Scheduler, DrainIsOverWhenEverybodyHasHeard) {
  class Slow final : public Listener {
   public:
    void piece(Piece) override {}
    void ended(ChoiceEnd) override {}
    void done(const Summary&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      heard = true;
    }
    void failed(const Error&, const std::string&, bool) override {}
    std::atomic<bool> heard = false;
  };
  Rig rig;
  Generation generation;
  generation.prompt = *rig.model.tokenize("abc", true, true);
  generation.max_tokens = 1;
  const auto slow = std::make_shared<Slow>();
  ASSERT_TRUE(rig.scheduler->submit(std::move(generation), slow));
  EXPECT_TRUE(rig.scheduler->drain(30'000'000'000));
  EXPECT_TRUE(slow->heard);
}

TEST(Scheduler, ErrandsAreWaitedForWhoeverElseIsServed) {
  Rig rig;
  std::atomic<bool> over = false;
  // The end of a request also wakes threads that wait for errands.
  std::thread asking([&] {
    for (uint32_t i = 0; !over; ++i) {
      EXPECT_TRUE(rig.ask(words(4, i), 1)->wait());
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < 200; ++i) {
        bool ran = false;
        EXPECT_TRUE(rig.scheduler->run([&](SequenceCache&) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          ran = true;
        }));
        EXPECT_TRUE(ran);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  asking.join();
  rig.expect_quiet();
}

TEST(Scheduler, StopCancelsWhatIsUnderWay) {
  Rig rig;
  rig.model.pass_us = 1'000;
  std::vector<std::shared_ptr<Ear>> ears;
  for (uint32_t i = 0; i < 10; ++i) {
    ears.push_back(
        rig.ask(words(50, i), 0xFFFFU, [](Generation& g) { g.sampling.ignore_eos = true; }));
  }
  EXPECT_FALSE(rig.scheduler->drain(20'000'000));
  rig.scheduler->stop();
  for (const auto& ear : ears) EXPECT_EQ(ear->times_over(), 1U);
  EXPECT_FALSE(rig.scheduler->run([](SequenceCache&) {}));
}

// ---- Everything at once -------------------------------------------------------------------------

TEST(Scheduler, ClientsOfAllKindsOnManyThreads) {
  const auto seed = static_cast<uint32_t>(test::from_environment("STEMMA_SERVER_SEED", 1));
  const auto limit = test::from_environment("STEMMA_SERVER_SECONDS", 3);
  for (const EngineKind& kind : test::every_engine()) {
    SCOPED_TRACE(kind.name);
    FakeSequences::Options engine = kind.options;
    engine.context_tokens = 700;
    SchedulerOptions options;
    options.queue = 16;
    options.cache.saved_bytes = 40'000;
    options.answer_tokens = 16;
    Rig rig(engine, options);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit * 100);
    std::atomic<uint64_t> answered = 0;
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < 8; ++c) {
      clients.emplace_back([&, c] {
        uint64_t dice = base::mix(seed * 100 + c);
        const auto roll = [&](uint32_t sides) {
          dice = base::mix(dice + 0x9E37'79B9'7F4A'7C15U);
          return static_cast<uint32_t>(dice % sides);
        };
        while (std::chrono::steady_clock::now() < until) {
          std::string prompt = words(40, roll(2)) + words(roll(60), roll(20));
          const uint32_t tokens = roll(40);
          const uint32_t choices = roll(6) == 0 ? 3 : 1;
          Generation generation;
          generation.prompt = *rig.model.tokenize(prompt, true, true);
          generation.max_tokens = tokens;
          generation.choices = choices;
          generation.sampling.temperature = 0;
          generation.session = roll(3) == 0 ? "s" + std::to_string(roll(4)) : "";
          if (roll(4) == 0) generation.salt = "salt " + std::to_string(roll(3));
          auto ear = std::make_shared<Ear>();
          const auto taken = rig.scheduler->submit(std::move(generation), ear);
          if (!taken) continue;
          const bool gone = roll(4) == 0;
          if (gone) {
            std::this_thread::sleep_for(std::chrono::microseconds(roll(3000)));
            rig.scheduler->cancel(*taken);
          }
          ASSERT_TRUE(ear->wait()) << "stuck";
          if (ear->failure.empty()) {
            for (uint32_t choice = 0; choice < choices; ++choice) {
              ASSERT_EQ(ear->text(choice), rig.expected(prompt, tokens)) << prompt;
            }
            ++answered;
          } else {
            ASSERT_TRUE(gone) << ear->failure;
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_GT(answered, 0U);
    rig.expect_quiet();
  }
}

}  // namespace
}  // namespace stemma::server
