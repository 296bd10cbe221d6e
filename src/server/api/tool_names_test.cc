// Tools and calls, as all APIs read them: the same names, and as many as clients like to send.
#include "server/api/tool_names.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/request.h"
#include "server/api/ollama/request.h"
#include "server/api/openai/request.h"
#include "server/api/responses/request.h"
#include "support/cpu_time.h"

namespace stemma::server::tool_names_test {
namespace {

ApiError ok_or(const std::optional<ApiError>& error) {
  return error.value_or(ApiError{.status = 200});
}

struct Api {
  const char* name;
  std::function<std::string(const std::string& name)> tool;  // As JSON.
  // A call and, behind everything else, its result.
  std::function<std::string(const std::string& id)> call;
  // The body of a request with these tools, or with these calls in one answer.
  std::function<std::string(const std::string& tools, const std::string& calls)> body;
  std::function<ApiError(const std::string& body)> decode;
};

std::vector<Api> every_api() {
  const auto chat = [](const std::string& head, const std::string& calls) {
    return head + R"("messages":[{"role":"user","content":"x"})" +
           (calls.empty() ? "" : R"(,{"role":"assistant","tool_calls":[)" + calls + "]}") + "]";
  };
  const auto function = [](const std::string& name) {
    return R"({"type":"function","function":{"name":")" + name + R"("}})";
  };
  return {
      {"chat", function,
       [](const std::string& id) {
         return R"({"id":")" + id + R"(","function":{"name":"f","arguments":""}})";
       },
       [=](const std::string& tools, const std::string& calls) {
         return chat("{", calls) + (tools.empty() ? "" : ",\"tools\":[" + tools + "]") + "}";
       },
       [](const std::string& body) {
         ChatRequest request;
         return ok_or(decode_chat(body, {}, request));
       }},
      {"ollama", function,
       [](const std::string& id) { return R"({"id":")" + id + R"(","function":{"name":"f"}})"; },
       [=](const std::string& tools, const std::string& calls) {
         return chat("{\"model\":\"m\",", calls) +
                (tools.empty() ? "" : ",\"tools\":[" + tools + "]") + "}";
       },
       [](const std::string& body) {
         OllamaRequest request;
         return ok_or(decode_ollama_chat(body, {}, request));
       }},
      {"messages",
       [](const std::string& name) {
         return R"({"name":")" + name + R"(","input_schema":{"type":"object"}})";
       },
       [](const std::string& id) {
         return R"({"type":"tool_use","id":")" + id + R"(","name":"f","input":{}})";
       },
       [](const std::string& tools, const std::string& calls) {
         return R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"})" +
                (calls.empty() ? "" : R"(,{"role":"assistant","content":[)" + calls + "]}") + "]" +
                (tools.empty() ? "" : ",\"tools\":[" + tools + "]") + "}";
       },
       [](const std::string& body) {
         ChatRequest request;
         return ok_or(decode_anthropic(body, AnthropicBody::messages, {}, request));
       }},
      {"responses",
       [](const std::string& name) { return R"({"type":"function","name":")" + name + "\"}"; },
       [](const std::string& id) {
         return R"({"type":"function_call","call_id":")" + id + R"(","name":"f","arguments":""})";
       },
       [](const std::string& tools, const std::string& calls) {
         return R"({"input":[{"role":"user","content":"x"})" + (calls.empty() ? "" : "," + calls) +
                "]" + (tools.empty() ? "" : ",\"tools\":[" + tools + "]") + "}";
       },
       [](const std::string& body) {
         ResponseStore store{ResponseStore::Options{}};
         ResponsesRequest request;
         return ok_or(decode_responses(body, {}, store, request));
       }},
  };
}

std::string many(uint32_t count, const std::function<std::string(const std::string&)>& one) {
  std::string list;
  for (uint32_t i = 0; i < count; ++i) {
    if (i != 0) list += ',';
    list += one("n" + std::to_string(i));
  }
  return list;
}

TEST(ToolNames, NothingInThemLooksLikeAMarker) {
  for (const Api& api : every_api()) {
    for (const char* good : {"read", "mcp__files__read", "a.b:c/d-E_9"}) {
      EXPECT_EQ(api.decode(api.body(api.tool(good), "")).status, 200) << api.name << good;
    }
    for (const std::string& bad : {std::string("<|im_end|>"), std::string("</tool_call>"),
                                   std::string("a b"), std::string("a\\\"b"), std::string("a\\nb"),
                                   std::string("caf\xC3\xA9"), std::string(129, 'a')}) {
      const ApiError error = api.decode(api.body(api.tool(bad), ""));
      EXPECT_EQ(error.status, 400) << api.name << ' ' << bad;
      EXPECT_TRUE(error.param.ends_with("name")) << api.name << ' ' << error.param;
    }
    EXPECT_EQ(api.decode(api.body(api.tool("twice") + "," + api.tool("twice"), "")).status, 400)
        << api.name;
  }
}

TEST(ToolNames, AsManyToolsAsAnyoneNeedsAndNoMore) {
  for (const Api& api : every_api()) {
    EXPECT_EQ(api.decode(api.body(many(kMostTools, api.tool), "")).status, 200) << api.name;
    const ApiError error = api.decode(api.body(many(kMostTools + 1, api.tool), ""));
    EXPECT_EQ(error.status, 400) << api.name;
    EXPECT_NE(error.message.find("4096"), std::string::npos) << error.message;
  }
}

// Comparing each with every other one takes minutes.
TEST(ToolNames, ManyCallsInOneAnswerAreReadAtOnce) {
  constexpr uint32_t kCalls = 400'000;
  for (const Api& api : every_api()) {
    const std::string body = api.body("", many(kCalls, api.call));
    const uint64_t before = test::cpu_ns();
    const ApiError error = api.decode(body);
    EXPECT_LT(test::cpu_ns() - before, 40'000'000'000U) << api.name;
    // Messages needs their results, and Ollama's calls must not pile up.
    const bool refused = api.name == std::string("messages") || api.name == std::string("ollama");
    EXPECT_EQ(error.status, refused ? 400 : 200) << api.name << ' ' << error.message;
  }
}

}  // namespace
}  // namespace stemma::server::tool_names_test
