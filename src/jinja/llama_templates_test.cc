// Renders the chat templates of many models, which scripts/get-llama downloads, with conversations
// that use tools, and compares with Jinja2's text.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "templates/conversations.h"
#include "templates/judge.h"

namespace stemma::jinja {
namespace {

Value plain(const char* bytes) { return Value::string(bytes); }

Value made_call(const char* name, Value arguments) {
  return Value::dict(
      {{"id", plain("call00001")},
       {"type", plain("function")},
       {"function", Value::dict({{"name", plain(name)}, {"arguments", arguments}})}});
}

Value defined(const char* name) {
  const auto schema = [](const char* type) {
    return Value::dict({{"type", plain(type)}, {"description", plain("Some \"thing\" & <more>.")}});
  };
  return Value::dict(
      {{"type", plain("function")},
       {"function",
        Value::dict({{"name", plain(name)},
                     {"description", plain("Tells it.")},
                     {"parameters",
                      Value::dict({{"type", plain("object")},
                                   {"properties", Value::dict({{"city", schema("string")},
                                                               {"days", schema("integer")},
                                                               {"exact", schema("boolean")}})},
                                   {"required", Value::list({plain("city")})}})}})}});
}

Value object_arguments() {
  return Value::dict(
      {{"city", plain("Pa\"ris\n'x' <b> naïve")},
       {"days", Value::integer(3)},
       {"exact", Value::boolean(true)},
       {"limit", Value::real(0.5)},
       {"nothing", Value::none()},
       {"place", Value::dict({{"a", Value::list({Value::integer(1), plain("b")})}})}});
}

// Conversations with calls, in each form that clients send.
std::vector<std::pair<std::string, Value>> tool_conversations() {
  std::vector<std::pair<std::string, Value>> all;
  for (const bool object : {true, false}) {
    for (const uint32_t calls : {1U, 2U}) {
      for (const bool content : {true, false}) {
        std::vector<Value> made = {
            made_call("weather", object ? object_arguments()
                                        : plain("{\"city\": \"Pa\\\"ris\\n\", \"days\": 3}"))};
        if (calls == 2) made.push_back(made_call("news", object ? Value::dict({}) : plain("{}")));
        std::vector<Value> messages = {
            Value::dict({{"role", plain("system")}, {"content", plain("Be brief.")}}),
            Value::dict({{"role", plain("user")}, {"content", plain("Weather?")}}),
            Value::dict({{"role", plain("assistant")},
                         {"content", content ? plain("Let me see.") : Value::none()},
                         {"reasoning_content", plain("They want the weather.\nSo I call.")},
                         {"tool_calls", Value::list(std::move(made))}})};
        for (uint32_t i = 0; i < calls; ++i) {
          messages.push_back(Value::dict({{"role", plain("tool")},
                                          {"tool_call_id", plain("call00001")},
                                          {"name", plain(i == 0 ? "weather" : "news")},
                                          {"content", plain("{\"sun\": 1}")}}));
        }
        for (const bool thinking : {true, false}) {
          all.emplace_back(
              "calls " + std::to_string(calls) + (object ? " object" : " text") +
                  (content ? " content" : "") + (thinking ? " thinking" : ""),
              Value::dict({{"messages", Value::list(messages)},
                           {"tools", Value::list({defined("weather"), defined("news")})},
                           {"bos_token", plain("<s>")},
                           {"eos_token", plain("</s>")},
                           {"enable_thinking", Value::boolean(thinking)},
                           {"add_generation_prompt", Value::boolean(true)}}));
        }
      }
    }
  }
  return all;
}

std::string template_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

// Functionary 3.1 adds strings to `'...'|safe`, which makes Jinja2 escape them for HTML. We do not
// support such strings: our text is the same without the escapes.
std::string without_escapes(const std::string& text) {
  static const std::vector<std::pair<std::string, std::string>> kEscapes = {
      {"&#34;", "\""}, {"&#39;", "'"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    bool found = false;
    for (const auto& [escape, meaning] : kEscapes) {
      if (text.compare(at, escape.size(), escape) != 0) continue;
      out += meaning;
      at += escape.size();
      found = true;
      break;
    }
    if (!found) out += text[at++];
  }
  return out;
}

TEST(LlamaTemplates, RenderWithToolsAsJinja2Does) {
  if (!std::filesystem::exists(STEMMA_TEMPLATES_DIR)) {
    GTEST_SKIP() << "no templates in " STEMMA_TEMPLATES_DIR " (scripts/get-llama fetches them)";
  }
  std::vector<std::string> names;
  std::vector<JudgeRequest> requests;
  size_t templates = 0;
  auto all = conversations();
  for (auto& more : tool_conversations()) all.push_back(std::move(more));
  for (const auto& entry : std::filesystem::directory_iterator(STEMMA_TEMPLATES_DIR)) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    for (const auto& [name, variables] : all) {
      names.push_back(entry.path().stem().string() + ", " + name);
      requests.push_back({template_text(entry.path()), variables});
    }
  }
  EXPECT_EQ(templates, 70U);
  const auto verdicts = ask_judge(requests);
  if (!verdicts) GTEST_SKIP() << "there is no python3 with jinja2 to judge";
  size_t texts = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Verdict ours = render(requests[i].source, requests[i].variables);
    const Verdict& theirs = (*verdicts)[i];
    EXPECT_EQ(ours.ok, theirs.ok) << names[i] << "\nours:   " << ours.text.substr(0, 500)
                                  << "\ntheirs: " << theirs.text.substr(0, 500);
    if (!ours.ok || !theirs.ok) continue;
    const bool escaped = names[i].rfind("meetkai-functionary-medium-v3.1,", 0) == 0;
    EXPECT_EQ(ours.text, escaped ? without_escapes(theirs.text) : theirs.text) << names[i];
    ++texts;
  }
  std::printf("%zu templates, %zu renderings, %zu of them a text\n", templates, names.size(),
              texts);
}

}  // namespace
}  // namespace stemma::jinja
