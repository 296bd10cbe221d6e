// Tests the routes under /cache over real connections.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "server/app.h"
#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/sequence_tiers.h"
#include "support/server_rig.h"

namespace stemma::server {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::completion;
using test::conversation;
using test::error_code;
using test::HttpClient;
using test::Json;
using test::json;
using test::kChat;
using test::kCompletions;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;

uint64_t cached(const Json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<uint64_t>();
}

TEST(AppCache, WarmPrefixIsThereForTheFirstRequest) {
  ServerRig rig;
  const std::string prefix = letters(200, 1);
  const Json warm = json(rig.post("/cache/warm", {{"prompt", prefix}}));
  EXPECT_EQ(warm["tokens"], 201);
  const Json first = json(rig.post(kCompletions, completion(prefix + "x", 1)));
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 201);
  EXPECT_EQ(first["choices"][0]["text"], rig.expected(prefix + "x", 1));
}

TEST(AppCache, WarmConversationIsThereForItsAnswer) {
  ServerRig rig;
  const Json talk = conversation({{"system", letters(100, 1)}}, 1);
  ASSERT_EQ(rig.post("/cache/warm", talk).status, 200);
  const Json answer =
      json(rig.post(kChat, conversation({{"system", letters(100, 1)}, {"user", "Hi"}}, 1)));
  const Json prompt = json(rig.post(
      "/apply-template", {{"messages", talk["messages"]}, {"add_generation_prompt", false}}));
  const Json shared = json(rig.post("/tokenize", {{"content", prompt["prompt"]}}));
  EXPECT_GE(answer["usage"]["prompt_tokens_details"]["cached_tokens"], shared["tokens"].size());
}

// Memories that cannot go back resume at a checkpoint: before the header of the message that
// follows.
TEST(AppCache, SystemPromptIsReusedWhoeverSpeaksNext) {
  for (const test::EngineOptions& engine : {test::window_engine(), test::hybrid_engine()}) {
    ServerRigOptions options;
    options.engine = engine;
    ServerRig rig(options);
    const std::string system = letters(230, 1);
    const Json first = json(rig.post(kChat, conversation({{"system", system}, {"user", "Hi"}}, 1)));
    EXPECT_EQ(cached(first), 0U);
    for (const char* role : {"assistant", "system", "user"}) {
      const Json other =
          json(rig.post(kChat, conversation({{"system", system}, {role, letters(80, 2)}}, 1)));
      EXPECT_GE(cached(other), 230U) << role;
    }
  }
}

TEST(AppCache, RawCompletionsResumeAtIntervals) {
  ServerRigOptions options;
  options.engine = test::hybrid_engine();
  ServerRig rig(options);
  const std::string examples = letters(600, 1);
  const auto ask = [&](const std::string& question) {
    return cached(json(rig.post(kCompletions, completion(examples + question, 1))));
  };
  EXPECT_EQ(ask("A" + letters(50, 2)), 0U);
  EXPECT_EQ(ask("B" + letters(50, 3)), 512U);
  EXPECT_EQ(ask("C" + letters(50, 4)), 601U) << "the second one parted from the first there";
}

TEST(AppCache, PinnedPrefixOutlivesOthers) {
  ServerRigOptions options;
  options.engine.sequences = 1;
  options.scheduler.cache.saved_bytes = 30'000;
  ServerRig rig(options);
  rig.model.pass_us = 2'000;  // Loading is worth it.
  const std::string kept = letters(300, 1);
  ASSERT_EQ(rig.post("/cache/pin", {{"prompt", kept}}).status, 200);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(rig.post(kCompletions, completion(letters(300, 100 + i), 1)).status, 200);
  }
  const Json again = json(rig.post(kCompletions, completion(kept + "x", 1)));
  EXPECT_GE(again["usage"]["prompt_tokens_details"]["cached_tokens"], 256);
}

TEST(AppCache, CacheTellsWhatItHasAndForgetsIt) {
  ServerRig rig;
  const std::string prompt = letters(200, 1);
  ASSERT_EQ(rig.post(kCompletions, completion(prompt, 1)).status, 200);
  const Json saved = json(rig.post("/cache/save", Json::object()));
  EXPECT_TRUE(saved["saved"].is_number() && saved["bytes"].is_number());
  const Json stats = json(rig.get("/cache"));
  EXPECT_EQ(stats["turns"], 1);
  EXPECT_EQ(stats["prompt_tokens"], 201);
  EXPECT_EQ(stats["leased_sequences"], 0);
  EXPECT_GT(stats["segment_bytes"], 0);
  const Json entries = json(rig.get("/cache/entries"))["entries"];
  std::set<std::string> kinds;
  for (const Json& entry : entries) {
    kinds.insert(entry["kind"].get<std::string>());
    EXPECT_EQ(entry["scope"].get<std::string>().size(), 16U);
    EXPECT_EQ(entry["in_use"], false);
  }
  EXPECT_TRUE(kinds.contains("live") && kinds.contains("segments"));
  ASSERT_EQ(rig.post("/cache/reset", Json::object()).status, 200);
  EXPECT_EQ(json(rig.get("/cache/entries"))["entries"], Json::array());
  const Json after = json(rig.get("/cache"));
  EXPECT_EQ(after["segment_bytes"], 0);
  EXPECT_EQ(after["used_tokens"], 0);
  const Json again = json(rig.post(kCompletions, completion(prompt, 1)));
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(AppCache, ResetWhileAnswersAreUnderWayLeavesThemRight) {
  ServerRig rig;
  rig.model.pass_us = 2'000;
  const std::string prompt = rig.prompt_with(60, true);
  std::thread asking([&] {
    EXPECT_EQ(rig.stream(kCompletions, completion(prompt, 60, {{"stream", true}})).text(),
              rig.expected(prompt, 60));
  });
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rig.post("/cache/reset", Json::object()).status, 200);
    std::this_thread::sleep_for(5ms);
  }
  asking.join();
  rig.expect_quiet();
}

TEST(AppCache, ClientThatLeavesWarmingUpCancelsIt) {
  for (const char* path : {"/cache/warm", "/cache/pin"}) {
    ServerRig rig(ServerRigOptions::endless());
    rig.model.pass_us = 20'000;  // Three thousand passes.
    HttpClient client = rig.client();
    client.send(test::request_text("POST", path, Json({{"prompt", letters(200'000, 1)}}).dump()));
    ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().running == 1; }));
    client.abort();
    EXPECT_TRUE(becomes_true([&] { return rig.scheduler->stats().cancelled == 1; })) << path;
    rig.model.pass_us = 0;
    rig.expect_quiet();
    EXPECT_EQ(rig.scheduler->stats().completed, 0U) << path;
  }
}

// ---- Truncating ---------------------------------------------------------------------------------

TEST(AppCache, TruncateForgetsWhatFollowsAndKeepsThePrefix) {
  ServerRig rig;
  const std::string prefix = letters(100, 1);
  for (const char* rest : {"one way to go on", "another way"}) {
    ASSERT_EQ(rig.post(kCompletions, completion(prefix + rest, 4)).status, 200);
  }
  ASSERT_EQ(rig.post(kCompletions, completion(letters(100, 2), 4)).status, 200);
  ASSERT_EQ(rig.post("/cache/save", Json::object()).status, 200);
  const Json cut = json(rig.post("/cache/truncate", {{"prompt", prefix}}));
  EXPECT_EQ(cut["status"], "ok");
  EXPECT_EQ(cut["tokens"], 101);
  EXPECT_EQ(cut["in_use"], 0);
  EXPECT_EQ(cut["forgotten"]["sequences"], 2);
  EXPECT_GT(cut["forgotten"]["live_tokens"], 20);
  EXPECT_GT(cut["forgotten"]["segments"], 0);
  EXPECT_EQ(cut["forgotten"]["checkpoints"], 0);
  const Json again = json(rig.post(kCompletions, completion(prefix + "one way to go on", 4)));
  EXPECT_EQ(cached(again), 101U);
  EXPECT_EQ(again["choices"][0]["text"], rig.expected(prefix + "one way to go on", 4));
  EXPECT_EQ(cached(json(rig.post(kCompletions, completion(letters(100, 2), 4)))), 100U);
  // The same prompt in tokens.
  Json tokens = {256};
  for (const char c : prefix) tokens.push_back(static_cast<int>(c));
  EXPECT_EQ(json(rig.post("/cache/truncate", {{"prompt", tokens}}))["forgotten"]["sequences"], 1);
}

TEST(AppCache, TruncateTakesConversations) {
  ServerRig rig;
  const std::string rules = letters(100, 1);
  const Json first = json(rig.post(kChat, conversation({{"system", rules}, {"user", "Hi"}}, 4)));
  const Json cut = json(rig.post("/cache/truncate", conversation({{"system", rules}}, 1)));
  EXPECT_EQ(cut["forgotten"]["sequences"], 1);
  const Json again = json(rig.post(kChat, conversation({{"system", rules}, {"user", "Hi"}}, 4)));
  EXPECT_EQ(cached(again), cut["tokens"]);
  EXPECT_EQ(again["choices"][0]["message"], first["choices"][0]["message"]);
}

TEST(AppCache, TruncateOfNothingForgetsAllOfOneSalt) {
  ServerRig rig;
  const std::string prompt = letters(100, 1);
  const auto ask = [&](const char* salt) {
    return cached(json(rig.post(kCompletions, completion(prompt, 1, {{"cache_salt", salt}}))));
  };
  ask("a");
  ask("b");
  const Json cut = json(rig.post("/cache/truncate", {{"prompt", ""}, {"cache_salt", "a"}}));
  EXPECT_EQ(cut["tokens"], 0);
  EXPECT_EQ(cut["forgotten"]["sequences"], 1);
  EXPECT_EQ(ask("a"), 0U);
  EXPECT_EQ(ask("b"), 100U);
  // A request must name what to forget.
  EXPECT_EQ(error_code(rig.post("/cache/truncate", Json::object()), 400),
            "missing_required_parameter");
  EXPECT_EQ(rig.post("/cache/truncate", {{"prompt", Json::array()}}).status, 400);
}

TEST(AppCache, PurgeForgetsOneSaltAndSaysSo) {
  ServerRig rig;
  const std::string prompt = letters(100, 1);
  const auto ask = [&](const char* salt) {
    return cached(json(rig.post(kCompletions, completion(prompt, 1, {{"cache_salt", salt}}))));
  };
  ask("a");
  ask("b");
  const Json purged = json(rig.post("/cache/purge", {{"cache_salt", "a"}}));
  EXPECT_EQ(purged["status"], "ok");
  EXPECT_EQ(purged["tiers"], Json::array());
  EXPECT_EQ(ask("a"), 0U);
  EXPECT_EQ(ask("b"), 100U);
  EXPECT_EQ(error_code(rig.post("/cache/purge", Json::object()), 400),
            "missing_required_parameter");
  EXPECT_EQ(rig.post("/cache/purge", {{"cache_salt", ""}}).status, 400);
  EXPECT_EQ(rig.post("/cache/purge", {{"cache_salt", "a"}, {"colour", "red"}}).status, 400);
}

// ---- Over tiers ----

// A server over two tiers; the second one fails as its plan says.
struct OverTwoTiers {
  explicit OverTwoTiers(const FaultPlan& plan = {}) {
    tier::StackOptions levels;
    levels.query_ns = levels.load_ns = 60'000'000'000;
    for (const char* name : {"first", "second"}) {
      auto made = make_host_tier({.name = name, .capacity_bytes = 16U << 20U}).value();
      levels.levels.push_back({.tier = std::make_unique<FaultyTier>(
                                   std::move(made), name[0] == 's' ? plan : FaultPlan{})});
    }
    stack = tier::TierStack::create(std::move(levels)).value();
    ServerRigOptions options;
    tiers = std::make_unique<tier::SequenceTiers>(
        *stack,
        tier::SequenceTiers::Options{.traits = test::FakeSequences(options.engine).traits()});
    options.scheduler.tiers = tiers.get();
    options.scheduler.cache.listener = tiers.get();
    rig = std::make_unique<ServerRig>(options);
  }
  void ask(const std::string& prompt, const char* salt) {
    EXPECT_EQ(rig->post(kCompletions, completion(prompt, 1, {{"cache_salt", salt}})).status, 200);
    EXPECT_EQ(rig->post("/cache/save", Json::object()).status, 200);
  }
  uint64_t stored(size_t level) const { return stack->tier(level).stats().entries; }

  std::unique_ptr<tier::TierStack> stack;
  std::unique_ptr<tier::SequenceTiers> tiers;
  std::unique_ptr<ServerRig> rig;
};

TEST(AppCache, ForgettingReachesTheTiersAndSaysWhatWent) {
  for (const auto& [path, body] : std::vector<std::pair<const char*, Json>>{
           {"/cache/purge", {{"cache_salt", "a"}}},
           {"/cache/truncate", {{"prompt", ""}, {"cache_salt", "a"}}},
           {"/cache/reset", Json::object()}}) {
    SCOPED_TRACE(path);
    OverTwoTiers server;
    server.ask(letters(300, 1), "b");
    const uint64_t of_b = server.stored(0);
    server.ask(letters(300, 1), "a");
    const uint64_t all = server.stored(0);
    ASSERT_GT(all, of_b);
    const bool everything = std::string_view(path) == "/cache/reset";
    const uint64_t goes = everything ? all : all - of_b;
    const Json answer = json(server.rig->post(path, body));
    EXPECT_EQ(answer["status"], "ok");
    ASSERT_EQ(answer["tiers"].size(), 2U);
    for (size_t level = 0; level < 2; ++level) {
      const Json& tier = answer["tiers"][level];
      EXPECT_EQ(tier["name"], level == 0 ? "first" : "second");
      EXPECT_EQ(tier["entries"], goes);
      EXPECT_GT(tier["bytes"], 0);
      EXPECT_EQ(tier["complete"], true);
      EXPECT_EQ(tier["error"], nullptr);
      EXPECT_EQ(server.stored(level), all - goes);
    }
  }
}

TEST(AppCache, TruncateKeepsInTiersWhatTheCacheKeeps) {
  OverTwoTiers server;
  const std::string prefix = letters(128, 1);
  server.ask(letters(64, 1) + letters(200, 3), "a");  // Leaves the prefix before its end.
  const uint64_t others = server.stored(0);
  server.ask(prefix + letters(200, 2), "a");
  const uint64_t all = server.stored(0);
  const Json cut =
      json(server.rig->post("/cache/truncate", {{"prompt", prefix}, {"cache_salt", "a"}}));
  // The prefix has two segments; the first one was there before.
  EXPECT_EQ(server.stored(0), others + 1);
  EXPECT_EQ(cut["tiers"][0]["entries"], all - others - 1);
  EXPECT_EQ(cut["tiers"][0]["unsure"], 0);
}

TEST(AppCache, ATierThatFailsToForgetIsNamed) {
  OverTwoTiers server({.fail = 1000});
  const Json answer = json(server.rig->post("/cache/purge", {{"cache_salt", "a"}}));
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["tiers"][0]["complete"], true);
  EXPECT_EQ(answer["tiers"][1]["complete"], false);
  EXPECT_TRUE(answer["tiers"][1]["error"].is_string());
}

// The purge comes while answers are streamed. The requests end afterwards.
TEST(AppCache, APurgeLeavesNothingOfAnswersUnderWay) {
  for (const auto& [path, body] : std::vector<std::pair<const char*, Json>>{
           {"/cache/purge", {{"cache_salt", "a"}}}, {"/cache/reset", Json::object()}}) {
    SCOPED_TRACE(path);
    OverTwoTiers server;
    ServerRig& rig = *server.rig;
    rig.model.pass_us = 100'000;
    const Json more = {{"cache_salt", "a"}, {"stream", true}, {"ignore_eos", true}};
    HttpClient chat = rig.client();
    chat.send(test::request_text("POST", kChat,
                                 conversation({{"user", letters(100, 1)}}, 40, more).dump()));
    HttpClient response = rig.client();
    const Json stored = {{"input", letters(30, 2)}, {"max_output_tokens", 40}, {"temperature", 0},
                         {"cache_salt", "a"},       {"stream", true},          {"store", true}};
    response.send(test::request_text("POST", "/v1/responses", stored.dump()));
    ASSERT_EQ(chat.read_head().status, 200);
    ASSERT_EQ(response.read_head().status, 200);
    ASSERT_EQ(json(rig.post(path, body))["status"], "ok");
    rig.model.pass_us = 0;
    while (chat.read_piece()) {
    }
    std::string all;
    while (auto piece = response.read_piece()) all += *piece;
    EXPECT_TRUE(chat.complete() && response.complete());
    rig.expect_quiet();
    ASSERT_EQ(rig.post("/cache/save", Json::object()).status, 200);
    const Json cache = json(rig.get("/cache"));
    EXPECT_EQ(cache["transcripts"]["entries"], 0);
    EXPECT_EQ(json(rig.get("/cache/entries"))["entries"], Json::array());
    EXPECT_EQ(server.stored(0), 0U);
    EXPECT_EQ(server.stored(1), 0U);
    const size_t id = all.find("\"resp_");
    ASSERT_NE(id, std::string::npos);
    const std::string name = all.substr(id + 1, all.find('"', id + 1) - id - 1);
    EXPECT_EQ(rig.get("/v1/responses/" + name + "?cache_salt=a").status, 404);
  }
}

TEST(AppCache, TruncateLeavesAnswersUnderWayAlone) {
  ServerRig rig;
  rig.model.pass_us = 300'000;  // It runs until everything was checked.
  const std::string prompt = rig.prompt_with(60, true);
  std::string said;
  HttpClient client = rig.client();
  client.send(
      test::request_text("POST", kCompletions, completion(prompt, 60, {{"stream", true}}).dump()));
  ASSERT_EQ(client.read_head().status, 200);
  const Json cut = json(rig.post("/cache/truncate", {{"prompt", prompt.substr(0, 10)}}));
  EXPECT_EQ(cut["in_use"], 1);
  EXPECT_EQ(cut["forgotten"]["sequences"], 0);
  rig.model.pass_us = 0;
  while (auto piece = client.read_piece()) {
    for (const std::string& data : test::sse_data(*piece)) {
      if (data != "[DONE]") said += Json::parse(data)["choices"][0]["text"].get<std::string>();
    }
  }
  EXPECT_EQ(said, rig.expected(prompt, 60));
  rig.expect_quiet();
}

}  // namespace
}  // namespace stemma::server
