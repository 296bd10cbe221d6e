#include "bench/sequences/workloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/sequences/baseline.h"
#include "bench/sequences/minimum.h"

namespace stemma::bench::sequences {
namespace {

bool same(const Request& a, const Request& b) {
  return a.session == b.session && a.prompt == b.prompt && a.answer == b.answer &&
         a.message_ends() == b.message_ends();
}

TEST(Workloads, AreTheSameForTheSameSeedAndOthersForAnother) {
  const std::vector<Workload> first = all_workloads(1);
  const std::vector<Workload> again = all_workloads(1);
  const std::vector<Workload> other = all_workloads(2);
  ASSERT_EQ(first.size(), 7U);
  for (size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(first[i].requests.size(), again[i].requests.size());
    for (size_t j = 0; j < first[i].requests.size(); ++j) {
      EXPECT_TRUE(same(first[i].requests[j], again[i].requests[j])) << first[i].name << " " << j;
    }
    EXPECT_FALSE(same(first[i].requests[0], other[i].requests[0])) << first[i].name;
  }
}

TEST(Workloads, MessagesEndInOrderWithinThePrompt) {
  for (const Workload& workload : all_workloads(3)) {
    for (const Request& request : workload.requests) {
      uint32_t last = 0;
      for (const uint32_t end : request.message_ends()) {
        EXPECT_GT(end, last);
        last = end;
      }
      EXPECT_GT(last, 0U);
      EXPECT_LT(last, request.prompt.size());
      EXPECT_FALSE(request.answer.empty());
    }
  }
}

TEST(Workloads, EveryRequestFitsBesideAState) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    for (const Workload& workload : all_workloads(seed)) {
      const uint32_t states = workload.sequences > 1 ? 2 : 1;
      EXPECT_LE(states * workload.longest_tokens(), workload.context_tokens) << workload.name;
    }
  }
}

// A turn continues exactly where its session's last turn ended, answer included.
TEST(Workloads, ConversationsGoOnFromTheirAnswers) {
  std::map<std::string, Tokens> left;
  uint32_t continued = 0;
  for (const Request& request : shared_prompt(1).requests) {
    Tokens& before = left[request.session];
    EXPECT_EQ(common_prefix(before, request.prompt), before.size());
    continued += before.empty() ? 0 : 1;
    before = request.whole();
  }
  EXPECT_EQ(left.size(), 100U);
  EXPECT_GT(continued, 100U);
}

TEST(Workloads, RegeneratingRepeatsThePromptWithAnotherAnswer) {
  std::map<Tokens, std::set<Tokens>> answers;
  for (const Request& request : regenerate(1).requests) {
    EXPECT_TRUE(answers[request.prompt].insert(request.answer).second);
  }
  EXPECT_TRUE(std::ranges::any_of(answers, [](const auto& a) { return a.second.size() == 3; }));
}

TEST(Workloads, SubAgentsKnowWhatTheirAgentKnows) {
  const Workload workload = agent_turns(1);
  std::map<std::string, Tokens> agents;  // The prompt of each task's latest request.
  uint32_t forks = 0;
  for (const Request& request : workload.requests) {
    const size_t slash = request.session.find('/');
    if (slash == std::string::npos) agents[request.session] = request.prompt;
    if (request.session.find("/sub-") == std::string::npos) continue;
    const Tokens& parent = agents[request.session.substr(0, slash)];
    EXPECT_GT(common_prefix(parent, request.prompt), 1200U);
    ++forks;
  }
  EXPECT_GT(forks, 50U);
}

TEST(Minimum, IsWhatNoEarlierTextHas) {
  const auto request = [](Tokens prompt, Tokens answer) {
    return Request{.session = "", .prompt = std::move(prompt), .answer = std::move(answer)};
  };
  const Workload workload{.name = "by hand",
                          .about = "",
                          .requests = {request({1, 2, 3}, {4, 5}), request({1, 2, 3, 4, 9}, {6}),
                                       request({1, 2, 3}, {7}), request({8, 2}, {3})}};
  EXPECT_EQ(minimum(workload), (std::vector<uint32_t>{3, 1, 1, 2}));
}

}  // namespace
}  // namespace stemma::bench::sequences
