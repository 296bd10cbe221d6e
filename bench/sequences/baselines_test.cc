// Baselines that fail silently would flatter us. Checks what each is known to do and not to do.
#include <gtest/gtest.h>

#include "bench/sequences/baseline_ferrum_kv.h"
#include "bench/sequences/baseline_ferrum_models.h"
#include "bench/sequences/baseline_llama_server.h"
#include "bench/sequences/baseline_mistral.h"
#include "bench/sequences/baseline_sipp.h"
#include "bench/sequences/compare.h"
#include "bench/sequences/conversation.h"
#include "bench/sequences/minimum.h"
#include "bench/sequences/ours.h"
#include "bench/sequences/whole_states.h"

namespace stemma::bench::sequences {
namespace {

Setting setting(Model model) {
  return {.model = model,
          .sequences = 4,
          .context_tokens = 8192,
          .stored_bytes = 16'384 * kTokenBytes,
          .longest_tokens = 2000};
}

// A user's next question after the conversation so far.
Request next(Conversation& chat, Random& random) {
  chat.say(Role::user, random.words(40));
  return chat.turn(100);
}

Conversation chat_with_head(uint64_t seed, const char* session) {
  Random random(seed);
  Conversation chat(session);
  chat.say(Role::system, random.words(600));
  return chat;
}

uint32_t evaluated(Policy& policy, const Request& request) {
  const Served served = policy.serve(request);
  EXPECT_EQ(served.wrong, "");
  return served.evaluated;
}

class OnEveryModel : public testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Baselines, OnEveryModel, testing::ValuesIn(kModels),
                         [](const auto& model) { return to_string(model.param); });

// The minimum is a true one: no policy evaluates less, in any request.
TEST_P(OnEveryModel, NobodyBeatsTheMinimum) {
  for (const Workload& workload : {regenerate(1), edit_earlier(1), two_on_one(1)}) {
    const std::vector<uint32_t> least = minimum(workload);
    for (const Contender& contender : contenders()) {
      const auto policy = contender.make(setting_of(workload, GetParam(), Memory::normal));
      for (size_t i = 0; i < workload.requests.size(); ++i) {
        const uint32_t tokens = std::max(policy->serve(workload.requests[i]).evaluated, 1U);
        ASSERT_GE(tokens, least[i]) << contender.name << ", " << workload.name << " " << i;
        ASSERT_LE(policy->stored_bytes(), policy->budget_bytes()) << contender.name;
      }
    }
  }
}

// Sipp cuts windows that are gone. All others reuse only what belongs to the prompt.
TEST_P(OnEveryModel, OnlySippIsWrongAndOnlyOnWindows) {
  for (const Workload& workload : {regenerate(1), edit_earlier(1)}) {
    for (const Contender& contender : contenders()) {
      const auto policy = contender.make(setting_of(workload, GetParam(), Memory::tight));
      const Outcome outcome = run(*policy, workload);
      const bool expected = contender.name == "Sipp" && GetParam() == Model::window;
      EXPECT_EQ(outcome.wrong_requests > 0, expected)
          << contender.name << ", " << workload.name << ": " << outcome.first_wrong;
    }
  }
}

// With lru, prompts that never return push out those that do; not with a policy that learns.
TEST(Ours, TheRetentionPolicyDecidesWhatStays) {
  const Workload workload = one_shot(1);
  const Setting room = setting_of(workload, Model::full, Memory::normal);
  Ours plain(room, "lru");
  Ours learning(room, "default");
  EXPECT_LT(run(learning, workload).evaluated, run(plain, workload).evaluated);
}

TEST_P(OnEveryModel, LlamaServerGoesOnWhereItsSlotEnds) {
  LlamaServer server(setting(GetParam()), true);
  Random random(1);
  Conversation chat = chat_with_head(1, "a");
  const Request first = next(chat, random);
  const Request second = next(chat, random);
  EXPECT_EQ(evaluated(server, first), first.prompt.size());
  EXPECT_EQ(evaluated(server, second), second.prompt.size() - first.whole().size());
}

TEST_P(OnEveryModel, LlamaServerReusesARepeatedPromptUpToItsLastTokens) {
  LlamaServer server(setting(GetParam()), true);
  Random random(1);
  Conversation chat = chat_with_head(1, "a");
  const Request request = next(chat, random);
  evaluated(server, request);
  // Full attention goes back by one; the others to the checkpoint four tokens before the end.
  EXPECT_EQ(evaluated(server, request), GetParam() == Model::full ? 1U : 4U);
}

TEST_P(OnEveryModel, LlamaServerBringsAConversationBackFromRam) {
  LlamaServer server(setting(GetParam()), true);
  Random random(1);
  Conversation a = chat_with_head(1, "a");
  Conversation b = chat_with_head(2, "b");
  const Request first = next(a, random);
  evaluated(server, first);
  EXPECT_EQ(server.stored_bytes() > 0, GetParam() != Model::full) << "checkpoints of the slot";
  evaluated(server, next(b, random));
  EXPECT_GT(server.stored_bytes(), first.prompt.size() * kTokenBytes);
  const Request second = next(a, random);
  const auto new_tokens = static_cast<uint32_t>(second.prompt.size() - first.whole().size());
  // The window of a loaded state counts as too short, so a checkpoint is used and the answer is
  // evaluated again.
  const uint32_t again = GetParam() == Model::window ? 4 + 100 : 0;
  EXPECT_EQ(evaluated(server, second), new_tokens + again);
}

// A slot that keeps more than half of its tokens is not saved, so what it had beyond them is gone.
TEST(LlamaServer, LosesAUsersTailToTheNextUserOfTheSameHead) {
  LlamaServer server(setting(Model::full), true);
  Random random(1);
  const Conversation head = chat_with_head(1, "");
  Conversation a = head;
  Conversation b = head;
  const Request first = next(a, random);
  evaluated(server, first);
  evaluated(server, next(b, random));
  const Request second = next(a, random);
  EXPECT_GT(evaluated(server, second), second.prompt.size() - first.whole().size());
}

TEST(MistralRs, RewindsFullAttentionButFindsNoWholePrompt) {
  MistralRs cache(setting(Model::full));
  Random random(1);
  const Conversation head = chat_with_head(1, "");
  Conversation a = head;
  Conversation b = head;
  const Request first = next(a, random);
  evaluated(cache, first);
  const Request other = next(b, random);
  EXPECT_EQ(evaluated(cache, other), other.prompt.size() - head.length() - kHeaderTokens);
  EXPECT_EQ(evaluated(cache, first), first.prompt.size());
}

TEST(MistralRs, KeepsSixteen) {
  MistralRs cache(setting(Model::full));
  Random random(1);
  std::vector<Request> asked;
  for (uint32_t i = 0; i < 17; ++i) {
    Conversation chat("");
    chat.say(Role::system, random.words(50));
    asked.push_back(next(chat, random));
    evaluated(cache, asked.back());
    asked.back().prompt.push_back(7);  // So that it is not known whole.
    asked.back().answer = {8};
  }
  EXPECT_EQ(evaluated(cache, asked[1]), 1U);
  EXPECT_GT(evaluated(cache, asked[0]), 90U);
}

TEST(Sipp, SharesNothingBetweenSessions) {
  Sipp cache(setting(Model::full));
  Random random(1);
  const Conversation head = chat_with_head(1, "a");
  Conversation a = head;
  Conversation b = head;
  b.rename("b");
  const Request first = next(a, random);
  evaluated(cache, first);
  const Request second = next(a, random);
  EXPECT_EQ(evaluated(cache, second), second.prompt.size() - first.whole().size());
  const Request other = next(b, random);
  EXPECT_EQ(evaluated(cache, other), other.prompt.size());
}

TEST(Sipp, RestoresASessionThatLostItsSequence) {
  Sipp cache(setting(Model::full));
  Random random(1);
  Conversation a = chat_with_head(1, "a");
  const Request first = next(a, random);
  evaluated(cache, first);
  for (const char* name : {"b", "c", "d", "e"}) {
    Conversation other = chat_with_head(2, name);
    evaluated(cache, next(other, random));
  }
  const Request second = next(a, random);
  // Its snapshot serves all of the prompt but one token.
  EXPECT_EQ(evaluated(cache, second), second.prompt.size() - (first.prompt.size() - 1));
}

TEST(FerrumKv, ServesThePromptItKnowsAndNoOther) {
  FerrumKv cache(setting(Model::full));
  Random random(1);
  Conversation chat = chat_with_head(1, "a");
  const Request first = next(chat, random);
  const Request second = next(chat, random);
  EXPECT_EQ(evaluated(cache, first), first.prompt.size());
  EXPECT_EQ(evaluated(cache, first), 0U);
  EXPECT_EQ(evaluated(cache, second), second.prompt.size());
}

TEST(FerrumModels, SharesBlocksOfPromptsButNotOfAnswers) {
  FerrumModels cache(setting(Model::full));
  Random random(1);
  Conversation chat = chat_with_head(1, "a");
  const Request first = next(chat, random);
  const Request second = next(chat, random);
  evaluated(cache, first);
  EXPECT_EQ(evaluated(cache, second), second.prompt.size() - first.prompt.size() / 16 * 16);
}

TEST(WholeStates, GoBackWhereTheModelCan) {
  Random random(1);
  Conversation chat = chat_with_head(1, "a");
  const Request first = next(chat, random);
  const Request second = next(chat, random);
  for (const Model model : kModels) {
    WholeStates cache(setting(model));
    evaluated(cache, first);
    EXPECT_EQ(evaluated(cache, second), second.prompt.size() - first.whole().size());
    // The others go back to where the first one ended.
    const size_t again = second.prompt.size() - first.whole().size();
    EXPECT_EQ(evaluated(cache, second), model == Model::full ? 1U : again);
  }
}

}  // namespace
}  // namespace stemma::bench::sequences
