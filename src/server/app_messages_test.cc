// Conversations through Anthropic's Messages API, with tools and thinking. The model's answers
// never have the tokens that its tokenizer would give them. Tests which tokens are reused, that
// answers are right, and what is forgotten.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stemma/tier/host_tier.h"
#include "support/step_script.h"

namespace stemma::server {
namespace {

using test::do_step;
using test::ScriptedRig;
using test::ScriptedRigOptions;
using test::step_of;
using test::step_rig;
using Value = nlohmann::json;

constexpr const char* kMessages = "/v1/messages";

Value tool() {
  return {
      {"name", "read"}, {"description", "reads a line"}, {"input_schema", test::step_arguments()}};
}

struct Turn {
  Value content;
  uint32_t prompt = 0;
  uint32_t evaluated = 0;
  uint32_t generated = 0;
};

// A client that sends messages back, written again (members of objects in alphabetical order).
class Client {
 public:
  explicit Client(Value more = {}) : more_(std::move(more)) {}

  void say(const std::string& text) { messages_.push_back({{"role", "user"}, {"content", text}}); }
  void result(const Value& answer, const std::string& text) {
    Value results = Value::array();
    for (const Value& block : answer) {
      if (block["type"] != "tool_use") continue;
      results.push_back({{"type", "tool_result"},
                         {"tool_use_id", block["id"]},
                         {"content", Value::array({{{"type", "text"}, {"text", text}}})}});
    }
    messages_.push_back({{"role", "user"}, {"content", results}});
  }
  Turn turn(const ScriptedRig& rig) {
    Value body = {{"model", "scripted"},
                  {"max_tokens", 2000},
                  {"temperature", 0},
                  {"thinking", {{"type", "adaptive"}}},
                  {"tools", Value::array({tool()})},
                  {"messages", messages_}};
    if (!more_.is_null()) body.update(more_);
    const Value answer = rig.post(kMessages, body);
    if (!answer.contains("usage")) return {};
    const Value& usage = answer["usage"];
    Turn turn{.content = answer["content"]};
    const uint32_t read = usage["cache_read_input_tokens"];
    turn.evaluated = usage["input_tokens"].get<uint32_t>() +
                     usage["cache_creation_input_tokens"].get<uint32_t>();
    turn.prompt = turn.evaluated + read;
    turn.generated = usage["output_tokens"];
    messages_.push_back({{"role", "assistant"}, {"content", answer["content"]}});
    return turn;
  }
  Value& messages() { return messages_; }

 private:
  Value more_;
  Value messages_ = Value::array();
};

class EveryMemory : public testing::TestWithParam<test::EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Messages, EveryMemory, testing::ValuesIn(test::every_engine()),
                         [](const auto& tested) { return tested.param.name; });

// The answer depends on all of the prompt: an answer from a wrong prefix would differ.
std::string account(std::string_view prompt) {
  uint64_t sum = 1469598103934665603U;
  for (const char c : prompt) sum = (sum ^ static_cast<uint8_t>(c)) * 1099511628211U;
  if (step_of(prompt) % 3 == 2) return "<think>\nhm\n</think>\n\nwords say " + std::to_string(sum);
  return "<think>\nsum\n</think>\n\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": "
         "\"p" +
         std::to_string(sum) + "\"}}\n</tool_call>";
}

TEST_P(EveryMemory, AnswersAreThoseOfAServerWithoutReuse) {
  const ScriptedRig reusing(step_rig(GetParam().options), account);
  ScriptedRigOptions plain = step_rig(GetParam().options);
  plain.scheduler.reuse = false;
  const ScriptedRig computing(plain, account);
  Client one;
  Client other;
  for (uint32_t step = 0; step < 12; ++step) {
    const std::string text = "now step " + std::to_string(step);
    const bool result = step % 3 != 0;
    const auto next = [&](Client& client) {
      if (result) {
        client.result(client.messages().back()["content"], text);
      } else {
        client.say(text);
      }
    };
    next(one);
    next(other);
    const Turn here = one.turn(reusing);
    const Turn there = other.turn(computing);
    ASSERT_EQ(here.content.size(), there.content.size());
    for (size_t b = 0; b < here.content.size(); ++b) {
      for (const char* field : {"type", "text", "thinking", "input"}) {
        EXPECT_EQ(here.content[b].value(field, Value()), there.content[b].value(field, Value()))
            << step;
      }
    }
    EXPECT_EQ(here.prompt, there.prompt);
    EXPECT_EQ(there.evaluated, there.prompt);
  }
}

// A template that leaves out old thinking goes back to the user's last message, and no further.
TEST(AppMessages, StrippedThinkingCostsTheLastQuestionAgain) {
  const ScriptedRig rig(step_rig(test::full_engine()), do_step);
  Client client;
  client.say("begin with step 0");
  Turn before;
  uint32_t last_question = 0;
  for (uint32_t step = 0; step < 12; ++step) {
    const Turn turn = client.turn(rig);
    if (step != 0) {
      EXPECT_LE(turn.evaluated, turn.prompt - last_question + 8) << step;
    }
    if (step % 4 == 0) last_question = turn.prompt;
    client.result(turn.content, "done, go to step " + std::to_string(step + 1));
    if (step % 4 == 3) {
      // The user sends another message after the results.
      const Turn said = client.turn(rig);
      client.result(said.content, "wait");
      client.say("go on with step " + std::to_string(step + 1));
    }
    before = turn;
  }
}

TEST(AppMessages, AnEditedMessageIsAnsweredAsItWasEdited) {
  const ScriptedRig rig(step_rig(test::full_engine()), do_step);
  Client client;
  client.say("begin with step 0");
  for (uint32_t step = 0; step < 3; ++step) {
    const Turn turn = client.turn(rig);
    client.result(turn.content, "go to step " + std::to_string(step + 1));
  }
  const Value before = rig.get("/cache")["transcripts"];
  Value edited = client.messages();
  edited[3]["content"][2]["input"]["path"] = "other.txt";
  const Value counted = rig.post("/v1/messages/count_tokens", {{"model", "scripted"},
                                                               {"thinking", {{"type", "adaptive"}}},
                                                               {"tools", Value::array({tool()})},
                                                               {"messages", edited}});
  EXPECT_GT(counted["input_tokens"], 100);
  const Value after = rig.get("/cache")["transcripts"];
  EXPECT_EQ(after["spliced"].get<int>() - before["spliced"].get<int>(), 2);
  EXPECT_EQ(after["different"].get<int>() - before["different"].get<int>(), 1);
}

TEST(AppMessages, TranscriptsNeverCrossASalt) {
  const ScriptedRig rig(step_rig(test::full_engine()), do_step);
  Client mine(Value{{"cache_salt", "mine"}});
  mine.say("begin with step 0");
  const Turn turn = mine.turn(rig);
  mine.result(turn.content, "go to step 1");
  Client yours(Value{{"cache_salt", "yours"}});
  yours.messages() = mine.messages();
  yours.turn(rig);
  EXPECT_EQ(rig.get("/cache")["transcripts"]["unknown"], 1);
  EXPECT_EQ(rig.get("/cache")["transcripts"]["spliced"], 0);
  Client again(Value{{"cache_salt", "mine"}});
  again.messages() = mine.messages();
  again.turn(rig);
  EXPECT_EQ(rig.get("/cache")["transcripts"]["spliced"], 1);
}

TEST(AppMessages, WhatIsForgottenIsForgotten) {
  for (const char* how : {"/cache/reset", "/cache/purge", "/cache/truncate"}) {
    const ScriptedRig rig(step_rig(test::full_engine()), do_step);
    Client client(Value{{"cache_salt", "mine"}});
    client.say("begin with step 0");
    client.turn(rig);
    ASSERT_EQ(rig.get("/cache")["transcripts"]["entries"], 1);
    const bool all = std::string_view(how) == "/cache/reset";
    const auto forget = [&](const char* salt) {
      Value body = all ? Value::object() : Value{{"cache_salt", salt}};
      if (std::string_view(how) == "/cache/truncate") body["prompt"] = "a";
      rig.post(how, body);
    };
    forget("other");
    EXPECT_EQ(rig.get("/cache")["transcripts"]["entries"], all ? 0 : 1) << how;
    forget("mine");
    EXPECT_EQ(rig.get("/cache")["transcripts"]["entries"], 0) << how;
    EXPECT_EQ(rig.get("/cache")["transcripts"]["bytes"], 0) << how;
  }
}

// A server that was killed continues from its tiers: the cache's entries and the transcripts.
TEST(AppMessages, AConversationOutlivesTheServer) {
  tier::StackOptions options;
  options.query_ns = 60'000'000'000;
  options.levels.emplace_back().tier = *make_host_tier({.capacity_bytes = 64U << 20U});
  const auto stack = *tier::TierStack::create(std::move(options));
  ScriptedRigOptions with = step_rig(test::full_engine());
  with.stack = stack.get();
  Client client;
  client.say("begin with step 0");
  Turn before;
  {
    const ScriptedRig rig(with, do_step);
    for (uint32_t step = 0; step < 20; ++step) {
      before = client.turn(rig);
      client.result(before.content, "done, go to step " + std::to_string(step + 1));
    }
    rig.scheduler->run([](SequenceCache& cache) { cache.drain({.evict = true}); });
    ASSERT_TRUE(stack->flush(Clock::monotonic().now_ns() + 60'000'000'000));
  }
  const ScriptedRig rig(with, do_step);
  const Turn turn = client.turn(rig);
  EXPECT_EQ(turn.content[2]["input"]["line"], 20);
  EXPECT_EQ(rig.get("/cache")["transcripts"]["from_tiers"], 20);
  EXPECT_EQ(rig.get("/cache")["transcripts"]["spliced"], 20);
  // State is saved in segments; the rest of the last segment is computed again.
  const uint32_t repeated = before.prompt + before.generated;
  const uint32_t fresh = turn.prompt - repeated;
  EXPECT_LE(turn.evaluated, fresh + 64 + 8);
}

TEST(AppMessages, ErrorsHaveAnthropicsShape) {
  ScriptedRigOptions options = step_rig(test::full_engine());
  options.app.api_key = "secret";
  const ScriptedRig rig(options, do_step);
  const auto check = [&](const test::HttpAnswer& answer, int status, const char* type) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const Value body = Value::parse(answer.body, nullptr, false);
    EXPECT_EQ(body["type"], "error") << answer.body;
    EXPECT_EQ(body["error"]["type"], type) << answer.body;
    EXPECT_TRUE(body["error"]["message"].is_string());
    EXPECT_TRUE(body.contains("request_id"));
  };
  const Value hi = {{"model", "scripted"},
                    {"max_tokens", 5},
                    {"messages", Value::array({{{"role", "user"}, {"content", "step 1"}}})}};
  check(rig.ask(kMessages, hi), 401, "authentication_error");
  const test::HttpFields key = {{"x-api-key", "secret"},
                                {"anthropic-version", "2023-06-01"},
                                {"anthropic-beta", "interleaved-thinking-2025-05-14"}};
  EXPECT_EQ(rig.ask(kMessages, hi, key).status, 200);
  Value wrong = hi;
  wrong["model"] = "claude";
  check(rig.ask(kMessages, wrong, key), 404, "not_found_error");
  wrong = hi;
  wrong["messages"][0]["content"] = Value::array({{{"type", "image"}}});
  check(rig.ask(kMessages, wrong, key), 400, "invalid_request_error");
  check(rig.ask("/v1/messages/count_tokens", wrong, key), 400, "invalid_request_error");
  wrong = hi;
  wrong["messages"][0]["content"] = std::string(200'000, 'x');
  check(rig.ask(kMessages, wrong, key), 400, "invalid_request_error");
  test::HttpClient client(rig.http->port());
  const test::HttpAnswer get = client.get(kMessages, key);
  check(get, 405, "invalid_request_error");
  check(rig.ask("/v1/messages/batches", hi, key), 404, "not_found_error");
}

// Unknown fields are ignored, and named.
TEST(AppMessages, WhatIsPassedOverIsNamed) {
  const ScriptedRig rig(step_rig(test::full_engine()), do_step);
  const test::HttpAnswer answer =
      rig.ask(kMessages, {{"model", "scripted"},
                          {"max_tokens", 5},
                          {"container", "x"},
                          {"messages", Value::array({{{"role", "user"}, {"content", "step 1"}}})}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.header("x-stemma-ignored").find("container"), std::string::npos);
}

}  // namespace
}  // namespace stemma::server
