// Bodies that no client should send, to each API over a whole server: an error in the API's own
// shape, and no sequence that stays taken.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/step_script.h"

namespace stemma::test::app_bad_input_test {
namespace {

using Json = nlohmann::json;

struct Api {
  const char* target;
  // A request with this text by the user and this schema of a tool, as JSON texts.
  std::function<std::string(const std::string& text, const std::string& schema)> body;
  // Messages behind the user's: an answer with calls of these ids, and results of these ids.
  std::function<std::string(const std::vector<std::string>& calls,
                            const std::vector<std::string>& results)>
      turns;
  std::function<std::string(const Json& answer)> message;  // The error's text; "" if malformed.
};

std::string joined(const std::vector<std::string>& ids,
                   const std::function<std::string(const std::string&)>& one) {
  std::string list;
  for (const std::string& id : ids) list += (list.empty() ? "" : ",") + one(id);
  return list;
}

std::string openai_message(const Json& answer) {
  const Json error = answer.value("error", Json::object());
  const bool whole = error.is_object() && error.contains("type") && error.contains("param") &&
                     error.contains("code");
  return whole ? error.value("message", "") : "";
}

// Calls and results as chat completions and Ollama write them.
std::string chat_turns(const std::vector<std::string>& calls,
                       const std::vector<std::string>& results, const std::string& arguments) {
  std::string list;
  if (!calls.empty()) {
    list += R"(,{"role":"assistant","tool_calls":[)" +
            joined(calls,
                   [&](const auto& id) {
                     return R"({"id":")" + id + R"(","function":{"name":"read","arguments":)" +
                            arguments + "}}";
                   }) +
            "]}";
  }
  for (const std::string& id : results) {
    list += R"(,{"role":"tool","tool_call_id":")" + id + R"(","content":"r"})";
  }
  return list;
}

std::vector<Api> every_api() {
  const auto function = [](const std::string& schema) {
    return R"("tools":[{"type":"function","function":{"name":"read","parameters":)" + schema +
           "}}]";
  };
  return {
      {"/v1/chat/completions",
       [=](const std::string& text, const std::string& schema) {
         return R"({"max_tokens":200,"messages":[{"role":"user","content":")" + text + "\"}]," +
                function(schema) + "}";
       },
       [](const auto& calls, const auto& results) { return chat_turns(calls, results, "\"{}\""); },
       openai_message},
      {"/v1/responses",
       [](const std::string& text, const std::string& schema) {
         return R"({"max_output_tokens":200,"input":[{"role":"user","content":")" + text +
                R"("}],"tools":[{"type":"function","name":"read","parameters":)" + schema + "}]}";
       },
       [](const auto& calls, const auto& results) {
         const auto item = [](const char* type, const char* field) {
           return [=](const std::string& id) {
             return std::string(R"(,{"type":")") + type + R"(","name":"read","call_id":")" + id +
                    "\",\"" + field + R"(":"{}"})";
           };
         };
         std::string list;
         for (const std::string& id : calls) list += item("function_call", "arguments")(id);
         for (const std::string& id : results) list += item("function_call_output", "output")(id);
         return list;
       },
       openai_message},
      {"/v1/messages",
       [](const std::string& text, const std::string& schema) {
         return R"({"model":"m","max_tokens":200,"messages":[{"role":"user","content":")" + text +
                R"("}],"tools":[{"name":"read","input_schema":)" + schema + "}]}";
       },
       [](const auto& calls, const auto& results) {
         std::string list;
         if (!calls.empty()) {
           list +=
               R"(,{"role":"assistant","content":[)" +
               joined(calls,
                      [](const auto& id) {
                        return R"({"type":"tool_use","name":"read","input":{},"id":")" + id + "\"}";
                      }) +
               "]}";
         }
         if (!results.empty()) {
           list += R"(,{"role":"user","content":[)" +
                   joined(results,
                          [](const auto& id) {
                            return R"({"type":"tool_result","tool_use_id":")" + id + "\"}";
                          }) +
                   "]}";
         }
         return list;
       },
       [](const Json& answer) {
         if (answer.value("type", "") != "error" || !answer.contains("request_id")) {
           return std::string();
         }
         return answer["error"].value("message", "");
       }},
      {"/api/chat",
       [=](const std::string& text, const std::string& schema) {
         return R"({"model":"m","stream":false,"options":{"num_predict":200},"messages":[{"role":"user","content":")" +
                text + "\"}]," + function(schema) + "}";
       },
       [](const auto& calls, const auto& results) { return chat_turns(calls, results, "{}"); },
       [](const Json& answer) { return answer.value("error", ""); }},
  };
}

const std::string kObject = R"({"type":"object","properties":{"line":{"type":"integer"}}})";

// The template of the tests, but it raises where the user's text asks for it.
std::string raising_template() {
  return "{%- for m in messages %}{% if m.content is string and 'RAISE' in m.content %}"
         "{{ raise_exception('not with me') }}{% endif %}{% endfor %}" +
         step_template();
}

class BadInput : public testing::Test {
 protected:
  BadInput() : rig_(options(), do_step) {}
  static ScriptedRigOptions options() {
    ScriptedRigOptions options = step_rig(full_engine());
    options.chat_template = raising_template();
    options.app.any_model = true;
    return options;
  }
  HttpAnswer ask(const Api& api, const std::string& body) {
    return HttpClient(rig_.http->port(), std::chrono::seconds(120)).post(api.target, body);
  }
  // It is refused in the API's shape.
  void refused(const Api& api, const std::string& body, const std::string& says = "") {
    const HttpAnswer answer = ask(api, body);
    EXPECT_EQ(answer.status, 400) << api.target << ' ' << body.substr(0, 300) << '\n'
                                  << answer.body.substr(0, 500);
    const std::string message = api.message(Json::parse(answer.body, nullptr, false));
    EXPECT_FALSE(message.empty()) << api.target << ' ' << answer.body.substr(0, 500);
    EXPECT_NE(message.find(says), std::string::npos) << api.target << ' ' << message;
  }
  void TearDown() override {
    for (const Api& api : every_api()) {
      const HttpAnswer answer = ask(api, api.body("go to step 1", kObject));
      EXPECT_EQ(answer.status, 200) << api.target << answer.body;
    }
    EXPECT_EQ(rig_.scheduler->cache().stats().leased_sequences, 0U);
    EXPECT_TRUE(rig_.scheduler->run([](SequenceCache& cache) { cache.check_invariants(); }));
  }
  const ScriptedRig rig_;
};

std::string with_turns(const Api& api, const std::vector<std::string>& calls,
                       const std::vector<std::string>& results) {
  std::string body = api.body("go to step 1", kObject);
  const size_t end = body.find("}]");
  return body.insert(end + 1, api.turns(calls, results));
}

TEST_F(BadInput, ResultsThatAnswerNothingAndCallsThatShareAnId) {
  for (const Api& api : every_api()) {
    EXPECT_EQ(ask(api, with_turns(api, {"a", "b"}, {"b", "a"})).status, 200) << api.target;
    refused(api, with_turns(api, {}, {"a"}));
    refused(api, with_turns(api, {"a"}, {"b"}));
    refused(api, with_turns(api, {"a"}, {"a", "a"}));
    if (std::string(api.target) != "/api/chat") refused(api, with_turns(api, {"a", "a"}, {"a"}));
  }
}

TEST_F(BadInput, ATemplateThatRaisesIsTheRequestsFault) {
  for (const Api& api : every_api()) refused(api, api.body("RAISE", kObject), "not with me");
}

TEST_F(BadInput, SchemasThatAreHugeOrNestedWithoutEnd) {
  std::string open;
  std::string close;
  for (int i = 0; i < 100'000; ++i) {
    open += R"({"anyOf":[)";
    close += "]}";
  }
  std::string wide = R"({"type":"object","properties":{)";
  while (wide.size() < 10'000'000) {
    if (wide.back() != '{') wide += ',';
    wide += "\"p" + std::to_string(wide.size()) + R"(":{"type":"string","enum":["a","b"]})";
  }
  wide += "}}";
  for (const Api& api : every_api()) {
    refused(api, api.body("go to step 1", open + "{}" + close));
    refused(api, api.body("go to step 1", wide));
    refused(api, api.body("go to step 1", "[1]"));
    refused(api, api.body("go to step 1", "\"object\""));
    // A schema that makes no sense is named, and the call may have any arguments.
    const HttpAnswer odd = ask(api, api.body("go to step 1", R"({"type":"no such type"})"));
    EXPECT_EQ(odd.status, 200) << api.target << odd.body;
    EXPECT_NE(odd.header("x-stemma-unenforced").find("tools[0]"), std::string::npos) << api.target;
  }
}

TEST_F(BadInput, HostilePatternsAreCheapOrNamed) {
  for (const Api& api : every_api()) {
    for (const auto& [pattern, named] : std::vector<std::pair<const char*, bool>>{
             {"(a*)*(b|a)*$", false},
             {"(a|a|a|a|a|a|a|a)*b", false},
             {"(x+x+)+y", false},
             {"((((a{0,1000}){0,1000}){0,1000}){0,1000})", false},
             {"[", true},
             {"(?=x)", true},
             {R"(\\p{L})", true},
             {"a{5,2}", true}}) {
      const HttpAnswer answer = ask(
          api, api.body("go to step 1",
                        R"({"type":"object","properties":{"line":{"type":"string","pattern":")" +
                            std::string(pattern) + "\"}}}"));
      EXPECT_EQ(answer.status, 200) << api.target << ' ' << pattern << answer.body;
      EXPECT_EQ(!answer.header("x-stemma-unenforced").empty(), named) << api.target << pattern;
    }
  }
}

TEST_F(BadInput, ACallThatWasCutOffComesBackAndTheConversationGoesOn) {
  const std::string cut = R"("{\"line\": 1, \"pa")";
  for (const Api& api : every_api()) {
    std::string body = with_turns(api, {"c"}, {"c"});
    const std::string target = api.target;
    // Messages gives the arguments of such a call as {}, and Ollama leaves the call out.
    if (target == "/v1/chat/completions" || target == "/v1/responses") {
      const std::string whole = R"("arguments":"{}")";
      const size_t at = body.find(whole);
      ASSERT_NE(at, std::string::npos) << body;
      body.replace(at, whole.size(), R"("arguments":)" + cut);
    }
    const HttpAnswer answer = ask(api, body);
    EXPECT_EQ(answer.status, 200) << target << ' ' << answer.body;
  }
}

TEST_F(BadInput, MoreCallsThanAConversationHas) {
  for (const Api& api : every_api()) {
    std::vector<std::string> ids;
    for (uint32_t i = 0; i <= server::Chat::kMostCalls; ++i) ids.push_back("c" + std::to_string(i));
    refused(api, with_turns(api, ids, ids));
  }
}

TEST_F(BadInput, StrictSchemasThatCannotBeEnforcedAreRefusedByKeywordAndPlace) {
  const std::string schema = R"({"type":"object","properties":{"a":{"not":{}}}})";
  const std::vector<Api> apis = every_api();
  const auto strict = [](std::string body, const std::string& behind) {
    const size_t at = body.find(behind);
    EXPECT_NE(at, std::string::npos) << body;
    return body.insert(at, R"("strict":true,)");
  };
  refused(apis[0], strict(apis[0].body("x", schema), R"("name":"read")"),
          "tools[0].parameters/properties/a/not");
  refused(apis[1], strict(apis[1].body("x", schema), R"("name":"read")"),
          "tools[0].parameters/properties/a/not");
  refused(apis[2], strict(apis[2].body("x", schema), R"("name":"read")"),
          "tools[0].input_schema/properties/a/not");
}

// Looking at every part for each of them would take minutes.
TEST_F(BadInput, AMessageOfVeryManyParts) {
  std::string system;
  for (int i = 0; i < 300'000; ++i) system += R"(,{"type":"text","text":"x"})";
  const Api messages = every_api()[2];
  refused(messages,
          R"({"model":"m","max_tokens":5,"system":[)" + system.substr(1) +
              R"(],"messages":[{"role":"user","content":"x"}]})",
          "tokens");
}

// Every value of a good request is replaced by one of another type.
TEST_F(BadInput, WrongTypesEverywhere) {
  const std::vector<Json> others = {nullptr,        true, -1,
                                    1e300,          "x",  Json::array(),
                                    Json::object(), {{}}, {{"a", {{"b", {1, nullptr}}}}}};
  uint32_t refusals = 0;
  for (const Api& api : every_api()) {
    const Json good = Json::parse(with_turns(api, {"a"}, {"a"})).flatten();
    std::set<std::string> seen;
    for (const auto& [pointer, value] : good.items()) {
      for (Json::json_pointer at(pointer); !at.empty(); at = at.parent_pointer()) {
        // Without their limit some answers would fill the context.
        const std::string name = at.back();
        const bool limits = name.ends_with("_tokens") || name == "options" || name == "num_predict";
        if (limits || !seen.insert(at.to_string()).second) continue;
        for (const Json& other : others) {
          Json body = good.unflatten();
          body[at] = other;
          if (body.contains("stream")) body["stream"] = false;
          const HttpAnswer answer = ask(api, body.dump());
          ASSERT_TRUE(answer.status == 200 || answer.status == 400)
              << api.target << ' ' << body << answer.body;
          if (answer.status == 200) continue;
          ++refusals;
          EXPECT_FALSE(api.message(Json::parse(answer.body, nullptr, false)).empty())
              << api.target << ' ' << answer.body;
        }
      }
    }
  }
  EXPECT_GT(refusals, 200U);
}

}  // namespace
}  // namespace stemma::test::app_bad_input_test
