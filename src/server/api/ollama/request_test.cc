// Tests Ollama's bodies: they become the same conversations as those of other APIs.
#include "server/api/ollama/request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

// A separate namespace, because sources are compiled together.
namespace stemma::server::ollama_request_test {
namespace {

OllamaRequest chat(const std::string& fields) {
  OllamaRequest request;
  const auto error = decode_ollama_chat(R"({"model":"m",)" + fields + "}", {}, request);
  EXPECT_FALSE(error) << fields << ": " << error->message;
  return request;
}
OllamaRequest generate(const std::string& fields) {
  OllamaRequest request;
  const auto error = decode_ollama_generate(R"({"model":"m",)" + fields + "}", {}, request);
  EXPECT_FALSE(error) << fields << ": " << error->message;
  return request;
}
std::string fault(const std::string& fields, bool of_chat = true) {
  OllamaRequest request;
  const std::string body = R"({"model":"m",)" + fields + "}";
  const auto error =
      of_chat ? decode_ollama_chat(body, {}, request) : decode_ollama_generate(body, {}, request);
  return error ? error->param : "";
}
const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}])";

TEST(OllamaRequest, StreamsUnlessToldNotTo) {
  EXPECT_TRUE(chat(kHi).chat.options.stream);
  EXPECT_FALSE(chat(kHi + R"(,"stream":false)").chat.options.stream);
  EXPECT_EQ(chat(kHi).chat.messages.at(0).text(), "Hi");
  EXPECT_EQ(ollama_model_name("tiny:latest"), "tiny");
  EXPECT_EQ(ollama_model_name("tiny:7b"), "tiny:7b");
}

TEST(OllamaRequest, OptionsThatSampleAreTakenAndThoseOfItsRunnerArePassedOver) {
  const auto request =
      chat(kHi + R"(,"keep_alive":"5m","options":{"temperature":0.5,"top_k":7,"top_p":0.25,)"
                 R"("seed":3,"num_predict":9,"stop":["x"],"num_ctx":4096,"mirostat":1})");
  const RequestOptions& options = request.chat.options;
  EXPECT_EQ(options.sampling.temperature, 0.5F);
  EXPECT_EQ(options.sampling.top_k, 7U);
  EXPECT_EQ(options.sampling.seed, 3U);
  EXPECT_EQ(options.max_tokens, 9U);
  EXPECT_EQ(options.stop, std::vector<std::string>{"x"});
  for (const char* name : {"keep_alive", "options.num_ctx", "options.mirostat"}) {
    EXPECT_NE(std::ranges::find(options.ignored, name), options.ignored.end()) << name;
  }
  EXPECT_FALSE(chat(kHi + R"(,"options":{"num_predict":-1})").chat.options.max_tokens.has_value());
}

TEST(OllamaRequest, ResultsFindTheirCalls) {
  const auto request = chat(
      R"("messages":[{"role":"user","content":"go"},{"role":"assistant","content":"","thinking":"hm","tool_calls":[)"
      R"({"function":{"name":"a","arguments":{"x":1}}},{"id":"c2","function":{"name":"b","arguments":{}}},)"
      R"({"function":{"name":"a","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"c2","content":"B"},{"role":"tool","tool_name":"a","content":"A1"},)"
      R"({"role":"tool","content":"A2"}])");
  const auto& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[1].reasoning, "hm");
  EXPECT_TRUE(messages[1].parts.empty());
  ASSERT_EQ(messages[1].calls.size(), 3U);
  EXPECT_EQ(messages[1].calls[0].arguments, R"({"x":1})");
  EXPECT_EQ(messages[2].call_id, "c2");
  EXPECT_EQ(messages[3].call_id, messages[1].calls[0].id);
  EXPECT_EQ(messages[4].call_id, messages[1].calls[2].id);
  EXPECT_EQ(fault(R"("messages":[{"role":"tool","content":"x"}])"), "messages[0].role");
}

TEST(OllamaRequest, ToolsFormatAndThinking) {
  const auto request = chat(
      kHi +
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"think":"high",)"
      R"("format":{"type":"object"})");
  ASSERT_EQ(request.chat.tools.size(), 1U);
  EXPECT_EQ(request.chat.tools[0].name, "f");
  EXPECT_EQ(request.chat.thinking.effort, "high");
  EXPECT_EQ(request.chat.form.kind, AnswerForm::Kind::json_schema);
  EXPECT_EQ(chat(kHi + R"(,"format":"json","think":false)").chat.form.kind,
            AnswerForm::Kind::json_object);
  EXPECT_EQ(chat(kHi + R"(,"think":false)").chat.thinking.wanted, false);
  EXPECT_EQ(chat(kHi + R"(,"format":"")").chat.form.kind, AnswerForm::Kind::free);
  EXPECT_EQ(fault(kHi + R"(,"format":"xml")"), "format");
  EXPECT_EQ(fault(kHi + R"(,"think":3)"), "think");
  EXPECT_EQ(fault(kHi + R"(,"tools":[{}])"), "tools[0]");
}

TEST(OllamaRequest, GeneratesFromAPromptOrARawText) {
  const auto request = generate(R"("prompt":"Hi","system":"Be kind.")");
  ASSERT_EQ(request.chat.messages.size(), 2U);
  EXPECT_EQ(request.chat.messages[0].role, "system");
  EXPECT_FALSE(request.raw || request.load_only);
  const auto raw = generate(R"("prompt":"Once","raw":true,"options":{"num_predict":3})");
  EXPECT_TRUE(raw.raw);
  EXPECT_EQ(raw.plain.prompt, "Once");
  EXPECT_EQ(raw.plain.options.max_tokens, 3U);
  EXPECT_TRUE(generate(R"("keep_alive":0)").load_only);
  EXPECT_TRUE(chat(R"("messages":[])").load_only);
  EXPECT_EQ(fault(R"("prompt":"a","suffix":"b")", false), "suffix");
  EXPECT_EQ(fault(R"("prompt":"a","images":["x","y"])", false), "images");
  EXPECT_EQ(fault(R"("prompt":"a","raw":true,"format":"json")", false), "format");
}

}  // namespace
}  // namespace stemma::server::ollama_request_test
