// What the reference engine promises besides right logits: which request gives way, what is shared,
// what is refused.
#include <gtest/gtest.h>

#include <vector>

#include "oracle/rig.h"

namespace stemma::oracle {
namespace {

TEST(PagedEngine, RequestThatWaitedTooLongPreemptsTheYoungest) {
  Rig::Setup setup;
  setup.memory = {{.block_tokens = 4, .capacity_blocks = 80}};
  setup.engine.chunk_tokens = setup.engine.batch_tokens = 256;
  setup.engine.patience_steps = 64;
  Rig rig(setup);
  const uint64_t oldest = rig.submit(words(80, 1), 100);
  rig.engine().step();
  const uint64_t youngest = rig.submit(words(80, 2), 100);
  rig.engine().step();
  // 42 of 80 blocks, of which the two leave 38 and less.
  const uint64_t starving = rig.submit(words(168, 3), 1);
  for (uint32_t round = 0; round < 64; ++round) rig.engine().step();
  EXPECT_EQ(rig.counts().refusals, 64U);
  EXPECT_EQ(rig.counts().preemptions, 0U) << "64 rounds are borne";
  const uint64_t reused = rig.counts().reused_tokens;
  rig.sampled.clear();
  rig.engine().step();
  EXPECT_EQ(rig.counts().preemptions, 1U);
  EXPECT_EQ(rig.order, std::vector{starving}) << "it came in at once";
  EXPECT_EQ(rig.sampled, (std::vector{oldest, starving})) << "the youngest gave way";
  rig.run();
  EXPECT_EQ(rig.order, (std::vector{starving, oldest, youngest}));
  EXPECT_GT(rig.counts().reused_tokens, reused + 40) << "and found much of itself again";
}

TEST(PagedEngine, TwoThatDoNotFitTogetherBothEnd) {
  Rig::Setup setup;
  setup.memory = {{.block_tokens = 16, .capacity_blocks = 9}};
  setup.engine.chunk_tokens = 1;  // Slow, and with nothing to come back to.
  setup.engine.patience_steps = 1;
  Rig rig(setup);
  for (uint32_t i = 1; i < 4; ++i) {
    paged::RequestSpec spec{.prompt = words(80, i), .max_new_tokens = 4};
    spec.lease.lookup.write = false;
    rig.engine().submit(spec).value();
  }
  for (uint32_t step = 0; step < 5'000 && rig.engine().step(); ++step) {
  }
  EXPECT_EQ(rig.order.size(), 3U);
  EXPECT_GT(rig.counts().preemptions, 0U);
}

TEST(PagedEngine, RequestThatCannotGrowMakesTheYoungestGiveWay) {
  Rig::Setup setup;
  setup.memory = {{.block_tokens = 4, .capacity_blocks = 16}};
  Rig rig(setup);
  const uint64_t first = rig.submit(words(20, 1), 20);
  const uint64_t second = rig.submit(words(20, 2), 20);
  rig.run();
  EXPECT_GT(rig.counts().preemptions, 0U);
  EXPECT_EQ(rig.order, (std::vector{first, second}));
  EXPECT_EQ(rig.counts().failed, 0U);
}

TEST(PagedEngine, RequestThatCanNeverFitEndsWithAnError) {
  Rig::Setup setup;
  setup.memory = {{.block_tokens = 4, .capacity_blocks = 8}};
  setup.engine.patience_steps = 2;
  setup.engine.give_up_steps = 5;
  Rig rig(setup);
  rig.submit(words(40), 1);
  const uint64_t small = rig.submit(words(10, 2), 3);
  rig.run();
  EXPECT_EQ(rig.counts().failed, 1U);
  EXPECT_EQ(rig.finished.at(small).size(), 13U) << "those behind it are served";
}

TEST(PagedEngine, ContinuationsShareTheirPrompt) {
  Rig rig({});
  rig.engine().submit({.prompt = words(21), .max_new_tokens = 6, .best_of = 4}).value();
  rig.run();
  EXPECT_EQ(rig.order.size(), 4U);
  EXPECT_EQ(rig.counts().forks, 3U);
  EXPECT_EQ(rig.counts().computed_tokens, 21U + 4 * 5U) << "the prompt was computed once";
}

TEST(PagedEngine, WrongGuessesLeaveNoTrace) {
  class Wrong final : public paged::DraftModel {
   public:
    Token guess(const paged::Request&, const paged::Text&) override { return 255; }
  } wrong;
  Rig::Setup setup;
  setup.engine.draft = &wrong;
  Rig rig(setup);
  rig.engine().submit({.prompt = words(21), .max_new_tokens = 8, .guess_tokens = 3}).value();
  rig.run();
  EXPECT_GT(rig.counts().guesses_rejected, 0U);
  paged::Text text = rig.finished.begin()->second;
  const uint32_t answered = text.size();
  EXPECT_EQ(rig.cache.lookup(rig.scope, text.prompt())->reused_tokens, answered - 1);
  text.tokens[22] = 255;
  EXPECT_EQ(rig.cache.lookup(rig.scope, text.prompt())->reused_tokens, 22U);
}

TEST(PagedEngine, WrongGuessesDoNotMoveAState) {
  // Right now and then, so that some guesses of a step are taken and others are not.
  class Sometimes final : public paged::DraftModel {
   public:
    Token guess(const paged::Request&, const paged::Text& text) override {
      return text.size() < truth.size() && text.size() % 3 != 0 ? truth.tokens[text.size()] : 255;
    }
    paged::Text truth;
  } draft;
  Rig::Setup setup;
  setup.model.groups = {{}, {.attention = Attention::recurrent}};
  setup.model.layers = {0, 1};
  setup.memory = {{.block_tokens = 4, .capacity_blocks = 64}, {.capacity_blocks = 8}};
  setup.engine.draft = &draft;
  Rig rig(setup);
  draft.truth = rig.serve(words(21), 16);
  rig.cache.reset().value();
  const uint64_t id =
      rig.engine().submit({.prompt = words(21), .max_new_tokens = 16, .guess_tokens = 4}).value();
  rig.run();
  EXPECT_GT(rig.counts().guesses_accepted, 0U);
  EXPECT_GT(rig.counts().guesses_rejected, 0U);
  EXPECT_EQ(rig.finished.at(id).tokens, draft.truth.tokens);
}

TEST(PagedEngine, NothingIsGivenBackWhileAStepIsInFlight) {
  Rig::Setup setup;
  setup.engine.overlap = true;
  Rig rig(setup);
  rig.submit(words(8), 1);
  while (rig.finished.empty()) rig.engine().step();
  EXPECT_EQ(rig.cache.stats().leases, 1U) << "released, and waiting for its fence";
  EXPECT_GT(rig.cache.stats().groups[0].draft_blocks, 0U);
  EXPECT_FALSE(rig.engine().step()) << "the step lands";
  EXPECT_EQ(rig.cache.stats().leases, 0U);
  EXPECT_EQ(rig.cache.stats().groups[0].draft_blocks, 0U);
}

TEST(PagedEngine, AnotherTryStartsAgainAtThePromptsEnd) {
  Rig rig({});
  rig.engine().submit({.prompt = words(21), .max_new_tokens = 6, .retries = 2}).value();
  rig.run();
  EXPECT_EQ(rig.counts().retries, 2U);
  EXPECT_EQ(rig.counts().computed_tokens, 21U + 3 * 5U) << "the prompt was computed once";
}

TEST(PagedEngine, BadRequestsAreRefused) {
  Rig rig({});
  EXPECT_EQ(rig.engine().submit({}).error().code(), Errc::invalid_argument);
  EXPECT_EQ(rig.engine().submit({.prompt = words(4), .adapter = 1}).error().code(),
            Errc::invalid_argument);
  EXPECT_EQ(rig.engine().submit({.prompt = words(510), .max_new_tokens = 3}).error().code(),
            Errc::invalid_argument);
  EXPECT_FALSE(rig.engine().cancel(77));
  EXPECT_FALSE(rig.engine().step());
}

TEST(PagedEngine, PromptThatTheCacheRefusesEndsWithItsError) {
  Rig rig({});
  paged::Text text = words(9);
  text.tokens[3] = kTokenLimit;
  rig.submit(text, 2);
  text = words(9);
  text.media.push_back({.offset = 7, .length = 4});  // Beyond the end.
  rig.submit(text, 2);
  const uint64_t good = rig.submit(words(9), 2);
  rig.run();
  EXPECT_EQ(rig.counts().failed, 2U);
  EXPECT_EQ(rig.counts().refusals, 0U) << "nobody waited for room";
  EXPECT_EQ(rig.finished.at(good).size(), 11U);
}

TEST(PagedEngine, CancelledRequestGivesItsRoomBack) {
  Rig rig({});
  const uint64_t id = rig.submit(words(21), 8);
  rig.engine().step();
  EXPECT_TRUE(rig.engine().cancel(id));
  EXPECT_EQ(rig.cache.stats().leases, 0U);
  EXPECT_EQ(rig.cache.stats().groups[0].draft_blocks, 0U);
  EXPECT_FALSE(rig.engine().step());
}

}  // namespace
}  // namespace stemma::oracle
