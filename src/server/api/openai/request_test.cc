// Tests the request decoder: each field means what its clients mean, or is refused by name.
#include "server/api/openai/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stemma::server {
namespace {

// Returns a chat with these fields beside its message.
std::string chat_with(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}
std::string completion_with(const std::string& fields) {
  return R"({"prompt":"Once")" + (fields.empty() ? "" : "," + fields) + "}";
}
std::string message_with(const std::string& fields) {
  return R"({"messages":[{"role":"user",)" + fields + "}]}";
}

ChatRequest chat(const std::string& body) {
  ChatRequest request;
  const auto error = decode_chat(body, {}, request);
  EXPECT_FALSE(error) << body << ": " << error->message;
  return request;
}
CompletionRequest completion(const std::string& body) {
  CompletionRequest request;
  const auto error = decode_completion(body, {}, request);
  EXPECT_FALSE(error) << body << ": " << error->message;
  return request;
}
ApiError chat_error(const std::string& body, const ApiRules& rules = {}) {
  ChatRequest request;
  return decode_chat(body, rules, request).value_or(ApiError{.status = 200});
}
ApiError completion_error(const std::string& body) {
  CompletionRequest request;
  return decode_completion(body, {}, request).value_or(ApiError{.status = 200});
}
RequestOptions options(const std::string& fields) { return chat(chat_with(fields)).options; }

TEST(ChatRequest, SaysWhatItsDefaultsAre) {
  const ChatRequest request = chat(chat_with(""));
  ASSERT_EQ(request.messages.size(), 1U);
  EXPECT_EQ(request.messages[0].role, "user");
  EXPECT_EQ(request.messages[0].text(), "Hi");
  EXPECT_TRUE(request.messages[0].plain);
  EXPECT_TRUE(request.add_generation_prompt);
  EXPECT_FALSE(request.continue_final_message);
  const RequestOptions& said = request.options;
  EXPECT_TRUE(said.model.empty() && said.session.empty() && said.salt.empty());
  EXPECT_FALSE(said.stream || said.include_usage || said.max_tokens || said.top_logprobs);
  EXPECT_EQ(said.choices, 1U);
  EXPECT_TRUE(said.reuse);
  EXPECT_TRUE(said.ignored.empty());
  EXPECT_FALSE(said.sampling.seed);
}

TEST(ChatRequest, TakesWhatTheServerSaysWhereItSaysNothing) {
  ApiRules rules;
  rules.sampling.temperature = 0.25F;
  rules.sampling.top_k = 40;
  ChatRequest request;
  ASSERT_FALSE(decode_chat(chat_with(R"("top_k":3)"), rules, request));
  EXPECT_EQ(request.options.sampling.temperature, 0.25F);
  EXPECT_EQ(request.options.sampling.top_k, 3U);
}

TEST(RequestOptions, EachFieldMeansSomething) {
  EXPECT_EQ(options(R"("model":"m")").model, "m");
  EXPECT_TRUE(options(R"("stream":true)").stream);
  EXPECT_TRUE(options(R"("stream":true,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_EQ(options(R"("n":3)").choices, 3U);
  for (const std::string name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    EXPECT_EQ(options('"' + name + "\":7").max_tokens, 7U);
    EXPECT_FALSE(options('"' + name + "\":-1").max_tokens);
  }
  EXPECT_EQ(options(R"("n_predict":0)").max_tokens, 0U);
  EXPECT_EQ(options(R"("max_tokens":5,"max_completion_tokens":5)").max_tokens, 5U);
  EXPECT_EQ(options(R"("max_tokens":5.0)").max_tokens, 5U);
  EXPECT_EQ(options(R"("temperature":0.5)").sampling.temperature, 0.5F);
  EXPECT_EQ(options(R"("temperature":0)").sampling.temperature, 0.0F);
  EXPECT_EQ(options(R"("top_p":0.5)").sampling.top_p, 0.5F);
  EXPECT_EQ(options(R"("top_k":5)").sampling.top_k, 5U);
  EXPECT_EQ(options(R"("top_k":-1)").sampling.top_k, 0U);
  EXPECT_EQ(options(R"("min_p":0.5)").sampling.min_p, 0.5F);
  EXPECT_EQ(options(R"("presence_penalty":-0.5)").sampling.presence_penalty, -0.5F);
  EXPECT_EQ(options(R"("frequency_penalty":1.5)").sampling.frequency_penalty, 1.5F);
  EXPECT_EQ(options(R"("repeat_penalty":1.5)").sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(options(R"("repetition_penalty":1.5)").sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(options(R"("repeat_last_n":5)").sampling.repeat_last, 5U);
  EXPECT_EQ(options(R"("repeat_last_n":-1)").sampling.repeat_last, 0xFFFF'FFFFU);
  EXPECT_EQ(options(R"("seed":5)").sampling.seed, 5U);
  EXPECT_EQ(options(R"("seed":18446744073709551615)").sampling.seed, 18446744073709551615U);
  EXPECT_FALSE(options(R"("seed":-1)").sampling.seed);
  EXPECT_EQ(options(R"("stop":"x")").stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(options(R"("stop":["x","yz"])").stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(options(R"("stop":[])").stop.empty());
  EXPECT_EQ(options(R"("logprobs":true)").top_logprobs, 0U);
  EXPECT_EQ(options(R"("logprobs":true,"top_logprobs":4)").top_logprobs, 4U);
  EXPECT_FALSE(options(R"("logprobs":false,"top_logprobs":0)").top_logprobs);
  EXPECT_TRUE(options(R"("ignore_eos":true)").sampling.ignore_eos);
  EXPECT_EQ(options(R"("prompt_cache_key":"k")").session, "k");
  EXPECT_EQ(options(R"("cache_salt":"s")").salt, "s");
  EXPECT_FALSE(options(R"("cache_prompt":false)").reuse);
  EXPECT_EQ(options(R"("prompt_cache_retention":"24h")").retention, CacheRetention::day);
  EXPECT_EQ(options(R"("prompt_cache_retention":"in_memory")").retention,
            CacheRetention::in_memory);
  EXPECT_EQ(options(R"("id_slot":2)").slot, 2U);
  EXPECT_FALSE(options(R"("id_slot":-1)").slot);
}

TEST(RequestOptions, BiasIsReadInBothForms) {
  using Bias = std::vector<std::pair<Token, float>>;
  EXPECT_EQ(options(R"("logit_bias":{"5":-100,"7":1.5})").sampling.bias,
            (Bias{{5, -100.0F}, {7, 1.5F}}));
  EXPECT_EQ(options(R"("logit_bias":[[5,2],[7,false]])").sampling.bias,
            (Bias{{5, 2.0F}, {7, -INFINITY}}));
  EXPECT_TRUE(options(R"("logit_bias":{})").sampling.bias.empty());
}

TEST(RequestOptions, BecomeAGeneration) {
  const Generation generation =
      options(
          R"("n":2,"max_tokens":9,"stop":"x","prompt_cache_key":"k","cache_salt":"s",
             "cache_prompt":false,"logprobs":true,"top_logprobs":1,"top_k":4)")
          .generation();
  EXPECT_EQ(generation.choices, 2U);
  EXPECT_EQ(generation.max_tokens, 9U);
  EXPECT_EQ(generation.stop.size(), 1U);
  EXPECT_EQ(generation.session, "k");
  EXPECT_EQ(generation.salt, "s");
  EXPECT_FALSE(generation.reuse);
  EXPECT_EQ(generation.top_logprobs, 1U);
  EXPECT_EQ(generation.sampling.top_k, 4U);
  EXPECT_EQ(options("\"n\":1").generation().max_tokens, 0xFFFF'FFFFU);
}

TEST(RequestOptions, NullIsTheSameAsAbsent) {
  for (const std::string name :
       {"model", "stream", "stream_options", "n", "max_tokens", "temperature", "top_k", "seed",
        "stop", "logprobs", "top_logprobs", "logit_bias", "tools", "response_format", "user",
        "prompt_cache_key", "cache_salt", "chat_template_kwargs", "add_generation_prompt"}) {
    EXPECT_EQ(chat_error(chat_with('"' + name + "\":null")).status, 200) << name;
  }
}

TEST(RequestOptions, FieldsThatChangeNothingAreListed) {
  EXPECT_EQ(options(R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto",
                       "safety_identifier":"x","mirostat_tau":5)")
                .ignored,
            (std::vector<std::string>{"user", "safety_identifier", "service_tier", "metadata",
                                      "store", "mirostat_tau"}));
}

struct Refusal {
  std::string fields;
  std::string param;
  std::string code;
};

TEST(RequestOptions, WrongTypesAndValuesAreRefusedByName) {
  const std::vector<Refusal> refusals = {
      {R"("model":5)", "model", "invalid_type"},
      {R"("stream":"yes")", "stream", "invalid_type"},
      {R"("stream_options":{})", "stream_options", "invalid_value"},
      {R"("stream":true,"stream_options":[])", "stream_options", "invalid_type"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "invalid_type"},
      {R"("n":0)", "n", "integer_below_min_value"},
      {R"("n":129)", "n", "integer_above_max_value"},
      {R"("n":1.5)", "n", "invalid_type"},
      {R"("n":99999999999999999999)", "n", "invalid_type"},
      {R"("n":18446744073709551615)", "n", "integer_above_max_value"},
      {R"("max_tokens":0)", "max_tokens", "integer_below_min_value"},
      {R"("max_tokens":-2)", "max_tokens", "integer_below_min_value"},
      {R"("max_tokens":"5")", "max_tokens", "invalid_type"},
      {R"("max_tokens":5,"max_completion_tokens":6)", "max_tokens", "invalid_value"},
      {R"("temperature":2.5)", "temperature", "decimal_above_max_value"},
      {R"("temperature":-1)", "temperature", "integer_below_min_value"},
      {R"("temperature":true)", "temperature", "invalid_type"},
      {R"("top_p":1.1)", "top_p", "decimal_above_max_value"},
      {R"("top_k":-2)", "top_k", "integer_below_min_value"},
      {R"("min_p":-0.1)", "min_p", "decimal_below_min_value"},
      {R"("presence_penalty":3)", "presence_penalty", "integer_above_max_value"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty", "decimal_below_min_value"},
      {R"("repeat_penalty":0)", "repeat_penalty", "integer_below_min_value"},
      {R"("repeat_penalty":1.1,"repetition_penalty":1.2)", "repetition_penalty", "invalid_value"},
      {R"("repeat_last_n":-2)", "repeat_last_n", "integer_below_min_value"},
      {R"("seed":"x")", "seed", "invalid_type"},
      {R"("seed":1.5)", "seed", "invalid_type"},
      {R"("stop":"")", "stop", "invalid_value"},
      {R"("stop":5)", "stop", "invalid_type"},
      {R"("stop":["a",5])", "stop", "invalid_type"},
      {R"("stop":[[]])", "stop", "invalid_type"},
      {R"("stop":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17])", "stop", "array_above_max_length"},
      {R"("stop":")" + std::string(1025, 'x') + '"', "stop", "invalid_value"},
      {R"("logprobs":1)", "logprobs", "invalid_type"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "integer_above_max_value"},
      {R"("top_logprobs":2)", "top_logprobs", "invalid_value"},
      {R"("logit_bias":5)", "logit_bias", "invalid_type"},
      {R"("logit_bias":{"x":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"-1":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"5 ":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"2147483648":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"5":101})", "logit_bias", "integer_above_max_value"},
      {R"("logit_bias":{"5":"1"})", "logit_bias", "invalid_type"},
      {R"("logit_bias":[[5,true]])", "logit_bias", "invalid_type"},
      {R"("logit_bias":[[5]])", "logit_bias", "invalid_type"},
      {R"("logit_bias":[["Hello",1]])", "logit_bias", "unsupported_parameter"},
      {R"("ignore_eos":1)", "ignore_eos", "invalid_type"},
      {R"("user":5)", "user", "invalid_type"},
      {R"("metadata":"x")", "metadata", "invalid_type"},
      {R"("prompt_cache_key":5)", "prompt_cache_key", "invalid_type"},
      {R"("prompt_cache_key":")" + std::string(1025, 'x') + '"', "prompt_cache_key",
       "string_above_max_length"},
      {R"("prompt_cache_retention":"1h")", "prompt_cache_retention", "invalid_value"},
      {R"("cache_salt":"")", "cache_salt", "invalid_value"},
      {R"("cache_prompt":"no")", "cache_prompt", "invalid_type"},
      {R"("id_slot":-2)", "id_slot", "integer_below_min_value"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs", "invalid_type"},
      {R"("continue_final_message":true)", "continue_final_message", "invalid_value"},
      {R"("add_generation_prompt":1)", "add_generation_prompt", "invalid_type"},
  };
  for (const Refusal& refusal : refusals) {
    const ApiError error = chat_error(chat_with(refusal.fields));
    EXPECT_EQ(error.status, 400) << refusal.fields;
    EXPECT_EQ(error.type, "invalid_request_error") << refusal.fields;
    EXPECT_EQ(error.param, refusal.param) << error.message;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_NE(error.message.find("'" + refusal.param + "'"), std::string::npos) << error.message;
  }
}

TEST(RequestOptions, WhatIsNotKnownIsPassedOverAndListed) {
  EXPECT_EQ(options(R"("temprature":1,"":1,"prompt":"x","verbosity":"low")").ignored,
            (std::vector<std::string>{"temprature", "", "prompt", "verbosity"}));
  // Completions check their field names, too.
  EXPECT_EQ(completion_error(R"({"prompt":"x","temprature":1})").code, "unknown_parameter");
}

TEST(RequestOptions, MetadataMayNameTheSession) {
  EXPECT_EQ(options(R"("metadata":{"user_id":"u-1"})").user_session, "u-1");
  EXPECT_EQ(options(R"("metadata":{"user_id":5})").user_session, "");
}

TEST(RequestOptions, MessagesSayTheRangeAndTheValue) {
  EXPECT_EQ(chat_error(chat_with(R"("temperature":2.5)")).message,
            "Invalid 'temperature': expected a value from 0 to 2, but got 2.5.");
  EXPECT_EQ(chat_error(chat_with(R"("n":200)")).message,
            "Invalid 'n': expected a value from 1 to 128, but got 200.");
  EXPECT_EQ(chat_error(chat_with(R"("n":5)"), {.max_choices = 4}).message,
            "Invalid 'n': expected a value from 1 to 4, but got 5.");
  EXPECT_EQ(chat_error(chat_with(R"("stream":"yes")")).message,
            "Invalid type for 'stream': expected a boolean, but got a string.");
}

TEST(RequestOptions, HintsAndTheirUnknownMembersArePassedOverAndNamed) {
  const RequestOptions given =
      options(R"("stream":true,"stream_options":{"include_usage":true,"x":1},)"
              R"("prediction":{"type":"content","content":"a"},"web_search_options":{})");
  EXPECT_TRUE(given.include_usage);
  EXPECT_EQ(given.ignored,
            (std::vector<std::string>{"stream_options.x", "prediction", "web_search_options"}));
  ChatRequest request;
  EXPECT_FALSE(decode_chat(
      message_with(R"("content":"x","cache_control":{"type":"ephemeral","scope":"global"})"), {},
      request));
  EXPECT_TRUE(request.messages[0].cache_control);
  EXPECT_EQ(request.options.ignored, std::vector<std::string>{"messages[0].cache_control.scope"});
}

TEST(RequestOptions, WhatOthersSupportIsRefusedByNameUnlessItAsksForNothing) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"functions", R"([{"name":"f"}])"},
      {"function_call", R"({"name":"f"})"},
      {"audio", R"({"voice":"x"})"},
      {"modalities", R"(["text","audio"])"},
      {"mirostat", "2"},
      {"typical_p", "0.9"},
      {"xtc_probability", "0.5"},
      {"dry_multiplier", "0.8"},
      {"dynatemp_range", "0.5"},
      {"top_n_sigma", "1"},
      {"samplers", R"(["top_k"])"},
      {"n_probs", "2"},
      {"min_keep", "1"},
      {"n_keep", "5"},
      {"t_max_predict_ms", "100"},
      {"timings_per_token", "true"},
      {"lora", R"([{"id":0}])"},
      {"chat_template", R"("x")"},
      {"min_tokens", "1"},
      {"stop_token_ids", "[5]"},
      {"include_stop_str_in_output", "true"},
      {"skip_special_tokens", "false"},
      {"use_beam_search", "true"},
      {"prompt_logprobs", "1"},
      {"guided_json", "{}"},
      {"guided_regex", R"("x")"},
      {"structured_outputs", "{}"},
      {"echo", "true"},
  };
  for (const auto& [name, value] : fields) {
    const ApiError error = chat_error(chat_with('"' + name + "\":" + value));
    EXPECT_EQ(error.status, 400) << name;
    EXPECT_EQ(error.code, "unsupported_parameter") << name << ": " << error.message;
    EXPECT_EQ(error.param, name);
  }
  for (const std::string harmless :
       {R"("tools":[])", R"("tool_choice":"none")", R"("response_format":{"type":"text"})",
        R"("modalities":["text"])", R"("mirostat":0)", R"("typical_p":1.0)",
        R"("skip_special_tokens":true)", R"("grammar":"")", R"("verbosity":"medium")"}) {
    EXPECT_EQ(chat_error(chat_with(harmless)).status, 200) << harmless;
  }
}

TEST(ChatRequest, ContentMayBeParts) {
  const ChatRequest request = chat(R"({"messages":[
      {"role":"system","content":[{"type":"text","text":"a"},
        {"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}]},
      {"role":"developer","content":"d","cache_control":{"type":"ephemeral"}},
      {"role":"user","name":"ann","content":"c"}, {"role":"assistant","content":""}]})");
  ASSERT_EQ(request.messages.size(), 4U);
  EXPECT_EQ(request.messages[0].text(), "ab");
  EXPECT_FALSE(request.messages[0].plain);
  EXPECT_FALSE(request.messages[0].parts[0].cache_control);
  EXPECT_EQ(request.messages[0].parts[1].cache_control->ttl_ns, 3'600'000'000'000U);
  EXPECT_EQ(request.messages[1].cache_control->ttl_ns, 300'000'000'000U);
  EXPECT_EQ(request.messages[2].name, "ann");
  EXPECT_FALSE(request.messages[2].cache_control);
}

TEST(ChatRequest, MessagesThatCannotBeAreRefusedByPlace) {
  const std::vector<Refusal> refusals = {
      {R"({})", "messages", "missing_required_parameter"},
      {R"({"messages":null})", "messages", "missing_required_parameter"},
      {R"({"messages":"x"})", "messages", "invalid_type"},
      {R"({"messages":[]})", "messages", "invalid_value"},
      {R"({"messages":["x"]})", "messages[0]", "invalid_type"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role", "missing_required_parameter"},
      {R"({"messages":[{"role":"wizard","content":"x"}]})", "messages[0].role", "invalid_value"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})",
       "messages[1].content", "invalid_type"},
      {message_with(R"("content":[])"), "messages[0].content", "invalid_value"},
      {message_with(R"("content":["x"])"), "messages[0].content[0]", "invalid_type"},
      {message_with(R"("content":[{"text":"x"}])"), "messages[0].content[0].type",
       "missing_required_parameter"},
      {message_with(R"("content":[{"type":"text"}])"), "messages[0].content[0].text",
       "missing_required_parameter"},
      {message_with(R"("content":[{"type":"image_url","image_url":{"url":"x"}}])"),
       "messages[0].content[0].type", "unsupported_parameter"},
      {message_with(R"("content":"x","name":5)"), "messages[0].name", "invalid_type"},
      {message_with(R"("content":"x","cache_control":5)"), "messages[0].cache_control",
       "invalid_type"},
      {message_with(R"("content":"x","cache_control":{})"), "messages[0].cache_control.type",
       "missing_required_parameter"},
      {message_with(R"("content":"x","cache_control":{"type":"forever"})"),
       "messages[0].cache_control.type", "invalid_value"},
      {message_with(R"("content":"x","cache_control":{"type":"ephemeral","ttl":"2h"})"),
       "messages[0].cache_control.ttl", "invalid_value"},
  };
  for (const Refusal& refusal : refusals) {
    const ApiError error = chat_error(refusal.fields);
    EXPECT_EQ(error.status, 400) << refusal.fields;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
  }
  EXPECT_EQ(chat_error(message_with(R"("content":[{"type":"text","text":"x","cache_control":
      {"type":"ephemeral"}}],"cache_control":{"type":"ephemeral"})"),
                       {.max_pins = 1})
                .code,
            "invalid_value");
}

TEST(ChatRequest, WhatAnswersOfOthersCarryIsPassedOver) {
  EXPECT_EQ(chat(R"({"messages":[{"role":"assistant","content":"x","refusal":null,"tool_calls":[],
      "annotations":[],"reasoning_content":"hm"}]})")
                .options.ignored,
            std::vector<std::string>{"messages[0].annotations"});
}

TEST(ChatRequest, TheFinalMessageMayBeContinued) {
  const ChatRequest request =
      chat(R"({"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true})");
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_FALSE(chat(chat_with(R"("add_generation_prompt":false)")).add_generation_prompt);
  EXPECT_EQ(chat_error(R"({"messages":[{"role":"assistant","content":"x"}],
      "continue_final_message":true,"add_generation_prompt":true})")
                .param,
            "continue_final_message");
}

TEST(ChatRequest, TemplateArgumentsAreKept) {
  const ChatRequest request =
      chat(chat_with(R"("chat_template_kwargs":{"enable_thinking":false,"x":[1]})"));
  EXPECT_EQ(*request.template_kwargs.find("enable_thinking")->boolean(), false);
}

TEST(CompletionRequest, ThePromptIsTextOrTokens) {
  EXPECT_EQ(completion(R"({"prompt":"x"})").prompt, "x");
  EXPECT_EQ(completion(R"({"prompt":["x"]})").prompt, "x");
  EXPECT_EQ(completion(R"({"prompt":[1,2]})").tokens, (std::vector<Token>{1, 2}));
  EXPECT_EQ(completion(R"({"prompt":[[1,2]]})").tokens, (std::vector<Token>{1, 2}));
  for (const Refusal& refusal :
       std::vector<Refusal>{{R"({})", "prompt", "missing_required_parameter"},
                            {R"({"prompt":5})", "prompt", "invalid_type"},
                            {R"({"prompt":[]})", "prompt", "empty_array"},
                            {R"({"prompt":[[]]})", "prompt", "empty_array"},
                            {R"({"prompt":["a",7]})", "prompt", "invalid_type"},
                            {R"({"prompt":["a",[]]})", "prompt", "empty_array"},
                            {R"({"prompt":[1,"a"]})", "prompt", "invalid_type"},
                            {R"({"prompt":[1,-1]})", "prompt", "integer_below_min_value"},
                            {R"({"prompt":[2147483648]})", "prompt", "integer_above_max_value"},
                            {R"({"prompt":[{}]})", "prompt", "invalid_type"}}) {
    const ApiError error = completion_error(refusal.fields);
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
  }
}

TEST(CompletionRequest, HasFieldsOfItsOwn) {
  EXPECT_TRUE(completion(completion_with(R"("echo":true)")).echo);
  EXPECT_EQ(completion(completion_with(R"("logprobs":3)")).options.top_logprobs, 3U);
  EXPECT_EQ(completion(completion_with(R"("max_tokens":0)")).options.max_tokens, 0U);
  EXPECT_EQ(completion(completion_with(R"("best_of":1,"suffix":"")")).prompt, "Once");
  EXPECT_EQ(completion(completion_with(R"("best_of":2,"n":2)")).options.choices, 2U);
  for (const Refusal& refusal :
       std::vector<Refusal>{{R"("logprobs":21)", "logprobs", "integer_above_max_value"},
                            {R"("logprobs":true)", "logprobs", "invalid_type"},
                            {R"("echo":1)", "echo", "invalid_type"},
                            {R"("suffix":"x")", "suffix", "unsupported_parameter"},
                            {R"("best_of":2)", "best_of", "unsupported_parameter"},
                            {R"("top_logprobs":2)", "top_logprobs", "unknown_parameter"},
                            {R"("messages":[])", "messages", "unknown_parameter"}}) {
    const ApiError error = completion_error(completion_with(refusal.fields));
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
  }
}

TEST(TokenizeRequest, IsLlamaServers) {
  TokenizeRequest request;
  ASSERT_FALSE(decode_tokenize(R"({"content":"a"})", {}, request));
  EXPECT_EQ(request.content, "a");
  EXPECT_FALSE(request.add_special || request.with_pieces);
  EXPECT_TRUE(request.parse_special);
  ASSERT_FALSE(decode_tokenize(
      R"({"content":"","add_special":true,"parse_special":false,"with_pieces":true})", {},
      request));
  EXPECT_TRUE(request.add_special && request.with_pieces);
  EXPECT_FALSE(request.parse_special);
  EXPECT_EQ(decode_tokenize("{}", {}, request)->param, "content");
  EXPECT_EQ(decode_tokenize(R"({"content":5})", {}, request)->code, "invalid_type");
  EXPECT_EQ(decode_tokenize(R"({"content":"","x":1})", {}, request)->code, "unknown_parameter");
}

TEST(DetokenizeRequest, IsLlamaServers) {
  DetokenizeRequest request;
  ASSERT_FALSE(decode_detokenize(R"({"tokens":[3,1]})", {}, request));
  EXPECT_EQ(request.tokens, (std::vector<Token>{3, 1}));
  ASSERT_FALSE(decode_detokenize(R"({"tokens":[]})", {}, request));
  EXPECT_TRUE(request.tokens.empty());
  EXPECT_EQ(decode_detokenize("{}", {}, request)->param, "tokens");
  EXPECT_EQ(decode_detokenize(R"({"tokens":["a"]})", {}, request)->code, "invalid_type");
  EXPECT_EQ(decode_detokenize(R"({"tokens":7})", {}, request)->code, "invalid_type");
}

TEST(ApplyTemplate, TakesTheBodyOfAChat) {
  ChatRequest request;
  EXPECT_FALSE(decode_apply_template(chat_with(R"("temperature":1)"), {}, request));
  EXPECT_EQ(request.messages.size(), 1U);
}

TEST(Bodies, ThatAreNoObjectsAreRefused) {
  for (const std::string body :
       {"", "{", "[]", "5", "\"x\"", "null", "{\"a\":}", "{\"messages\":[{\"role\":\"\xFF\"}]}"}) {
    const ApiError error = chat_error(body);
    EXPECT_EQ(error.status, 400);
    EXPECT_TRUE(error.code == "invalid_json" || error.code == "invalid_type") << body;
    EXPECT_FALSE(nlohmann::json::parse(encode_error(error))["error"]["message"].empty());
  }
  EXPECT_EQ(chat_error(R"({"n":1,"n":2})").code, "invalid_json");
  EXPECT_EQ(
      chat_error(chat_with(R"("metadata":)" + std::string(200, '[') + std::string(200, ']'))).code,
      "invalid_json");
}

TEST(Bodies, LargeOnesAreReadInReasonableTime) {
  std::string many = R"({"messages":[{"role":"user","content":"x"}])";
  for (int i = 0; i < 200'000; ++i) many += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(chat(many + "}").options.ignored.size(), 200'000U);
  std::string tokens = R"({"prompt":[1)";
  for (int i = 0; i < 300'000; ++i) tokens += ",1";
  EXPECT_EQ(completion(tokens + "]}").tokens.size(), 300'001U);
}

TEST(Vocabulary, TokensBeyondItAreRefused) {
  EXPECT_FALSE(check_vocabulary(options(R"("logit_bias":{"9":1})"), 10));
  EXPECT_EQ(check_vocabulary(options(R"("logit_bias":{"10":1})"), 10)->param, "logit_bias");
  EXPECT_EQ(check_vocabulary({1, 2, 10}, "prompt", 10)->message,
            "Invalid 'prompt': expected token ids from 0 to 9, but got 10.");
}

TEST(ApiErrors, AreShapedAsOpenAisAre) {
  const auto json = nlohmann::json::parse(
      encode_error({.status = 400, .message = "a \"b\" \xFF\n", .param = "", .code = "c"}));
  EXPECT_EQ(json["error"]["message"], "a \"b\" \xEF\xBF\xBD\n");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(json["error"]["param"].is_null());
  EXPECT_EQ(json["error"]["code"], "c");
  EXPECT_EQ(unknown_model("x").status, 404);
  EXPECT_EQ(wrong_key().status, 401);
  EXPECT_EQ(context_exceeded(9, 8).code, "context_length_exceeded");
  EXPECT_EQ(overloaded("x").status, 503);
  EXPECT_EQ(internal_error("x").status, 500);
  EXPECT_TRUE(encode_error_event(wrong_key()).starts_with("data: {\"error\":"));
}

}  // namespace
}  // namespace stemma::server
