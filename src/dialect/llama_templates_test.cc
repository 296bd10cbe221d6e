// The chat templates of many models, which scripts/get-llama downloads. We find the format of each,
// read back what it renders, and read answers in it however they are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "dialect/probe.h"
#include "dialect/write_calls.h"
#include "support/answers.h"

namespace stemma::dialect {
namespace {

struct ModelTemplate {
  std::string name;
  std::string source;
  std::shared_ptr<jinja::Template> chat;
  Format format;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

const std::vector<ModelTemplate>& templates() {
  static const std::vector<ModelTemplate> all = [] {
    std::vector<ModelTemplate> found;
    if (!std::filesystem::exists(STEMMA_TEMPLATES_DIR)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(STEMMA_TEMPLATES_DIR)) {
      if (entry.path().extension() != ".jinja") continue;
      ModelTemplate one{entry.path().stem().string(), read(entry.path()), nullptr, {}};
      auto parsed = jinja::Template::parse(one.source);
      if (auto* chat = std::get_if<jinja::Template>(&parsed)) {
        one.chat = std::make_shared<jinja::Template>(std::move(*chat));
        one.format = probe(*one.chat, one.source);
      }
      found.push_back(std::move(one));
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return found;
  }();
  return all;
}

#define SKIP_WITHOUT_TEMPLATES()                                                                 \
  if (templates().empty()) {                                                                     \
    GTEST_SKIP() << "no templates in " STEMMA_TEMPLATES_DIR " (scripts/get-llama fetches them)"; \
  }

std::vector<jinja::Value> definitions() {
  std::vector<jinja::Value> all;
  for (const Tool& tool : weather_tools()) {
    all.push_back(jinja::Value::dict(
        {{"type", jinja::Value::string("function")},
         {"function", jinja::Value::dict({{"name", jinja::Value::string(tool.name)},
                                          {"description", jinja::Value::string("Tells it.")},
                                          {"parameters", tool.parameters}})}}));
  }
  return all;
}

std::optional<std::string> render(const ModelTemplate& model, std::vector<jinja::Value> messages,
                                  bool prompt) {
  jinja::RenderOptions options;
  options.now = std::tm{};
  options.now->tm_mday = 1;
  auto rendered = model.chat->render(
      jinja::Value::dict({{"messages", jinja::Value::list(std::move(messages))},
                          {"tools", jinja::Value::list(definitions())},
                          {"bos_token", jinja::Value::string("<s>")},
                          {"eos_token", jinja::Value::string("</s>")},
                          {"add_generation_prompt", jinja::Value::boolean(prompt)}}),
      options);
  if (auto* text = std::get_if<jinja::Text>(&rendered)) return text->bytes;
  return std::nullopt;
}

std::vector<Call> two_calls() {
  return {
      {"call00001", "get_weather",
       // Sorted by name, as Gemma's template needs, and without null, which M3's template drops.
       R"({"city": "Pa\"ris\n'x' <b> naïve 東京", "days": 3, "exact": true, "hours": [1, 2], )"
       R"("limit": 0.5, "note": "42", "place": {"a": [1, "b", {"c": false}]}})"},
      {"call00002", "find_news", "{}"}};
}

// Calls whose text arguments contain every marker of the format.
std::vector<Call> calls_with_markers(const Format& format) {
  std::string text = "x";
  for (const std::string& marker : markers(format)) text += " " + marker + " y";
  return {{"call00001", "get_weather", "{\"city\": " + json_string(text) + ", \"days\": 1}"}};
}

// Compares calls, after writing their arguments in one notation.
void expect_calls(const std::vector<ParsedCall>& got, const std::vector<Call>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name) << what;
    EXPECT_TRUE(got[i].complete) << what;
    EXPECT_EQ(normal(got[i].arguments), normal(want[i].arguments)) << what;
  }
}

// Writes an answer as the model itself would.
std::string model_answer(const Format& format, const std::string& thought, const std::string& said,
                         const std::vector<Call>& calls) {
  const Channels& channels = format.channels;
  std::string out;
  if (!channels.opener.empty()) {
    // The prompt contains the first opener.
    const std::string closer = channels.closers.empty() ? "" : channels.closers.front();
    if (!thought.empty() && !channels.thinking_headers.empty()) {
      out += channels.opener + channels.thinking_headers.front() + channels.header_close + thought +
             closer;
    }
    const std::string header = channels.content_headers.empty() ? "" : channels.content_headers[0];
    if (!said.empty()) out += channels.opener + header + channels.header_close + said + closer;
    if (!calls.empty()) {
      if (!channels.calls_in_header) out += channels.opener + channels.header_close;
      out += write_calls_as_text(format, calls);
    }
    return out.substr(std::min(out.size(), channels.opener.size()));
  }
  if (!thought.empty()) {
    out += format.thinking.opener + "\n" + thought + "\n" + format.thinking.closer + "\n\n";
  }
  if (!said.empty()) out += format.content_open + said + format.content_close;
  if (!calls.empty()) out += (said.empty() ? "" : "\n") + write_calls_as_text(format, calls);
  return out;
}

bool thinks(const Format& format) {
  return !format.thinking.opener.empty() || !format.channels.thinking_headers.empty();
}

AnswerStart start_of(const Format& format) {
  return format.channels.opener.empty() ? AnswerStart::text : AnswerStart::header;
}

// Families found in our table. The others are found by difference, or have no calls.
const std::map<std::string, std::string> kNotByDifference = {
    {"Kimi-K2-Instruct", "Kimi K2"},
    {"Kimi-K2-Thinking", "Kimi K2"},
    {"LFM2-8B-A1B", "LFM2"},
    {"LFM2.5-Instruct", "LFM2"},
    {"MiniMax-M3", "MiniMax M3"},
    {"fireworks-ai-llama-3-firefunction-v2", "Firefunction"},
    {"ibm-granite-granite-3.3-2B-Instruct", "Granite 3"},
    {"meetkai-functionary-medium-v3.2", "Functionary 3.2"},
    {"muse-glimmer", "Muse"},
    {"openai-gpt-oss-120b", "gpt-oss"},
    {"HuggingFaceTB-SmolLM3-3B", "none"},
    {"google-gemma-2-2b-it", "none"},
    {"llama-cpp-rwkv-world", "none"},
    {"microsoft-Phi-3.5-mini-instruct", "none"},
};

TEST(LlamaTemplates, EveryFormatIsFound) {
  SKIP_WITHOUT_TEMPLATES();
  EXPECT_EQ(templates().size(), 70U);
  for (const ModelTemplate& model : templates()) {
    const auto other = kNotByDifference.find(model.name);
    EXPECT_EQ(model.format.source, other == kNotByDifference.end() ? "difference" : other->second)
        << model.name;
    std::printf("%s\n%s", model.name.c_str(), describe(model.format).c_str());
  }
}

TEST(LlamaTemplates, WhatIsRenderedIsReadBack) {
  SKIP_WITHOUT_TEMPLATES();
  size_t read_back = 0;
  for (const ModelTemplate& model : templates()) {
    const Format& format = model.format;
    if (!format.history.renders_calls) continue;
    std::vector<Call> calls = two_calls();
    if (!format.calls.parallel) calls.resize(1);
    const std::vector<Message> talk = {
        {.role = "user", .content = "Weather?"},
        {.role = "assistant", .content = "Let me see.", .reasoning = "They ask.", .calls = calls}};
    const auto messages = write_messages(format, talk);
    const std::string prompt = render(model, {messages[0]}, true).value_or("");
    const std::string full = render(model, messages, false).value_or("");
    if (model.name == "llama-cpp-deepseek-r1") {
      EXPECT_EQ(full, "");  // The template cannot write tool definitions in Jinja2 either.
      continue;
    }
    ASSERT_FALSE(full.empty()) << model.name;
    // The text after the prompt. If the prompt opens thinking: after their last common marker.
    size_t same = 0;
    while (same < prompt.size() && same < full.size() && prompt[same] == full[same]) ++same;
    while (same < prompt.size() && same > 0 && prompt[same - 1] != '>' && prompt[same - 1] != ']' &&
           prompt[same - 1] != '\n') {
      --same;
    }
    AnswerStart start = answer_start(format, std::string_view(full).substr(0, same));
    std::string answer = full.substr(same);
    // Apriel opens thinking in prompts and omits the opener in history.
    if (format.thinking.opened_by_prompt && answer.compare(0, 9, "They ask.") == 0) {
      start = AnswerStart::thinking;
    }
    // Nemotron's template writes the opener even before an answer without thinking.
    if (model.name == "NVIDIA-Nemotron-Nano-v2") start = AnswerStart::text;
    // The end of the turn, after the last call.
    const size_t last = answer.rfind(calls.back().name);
    const size_t end =
        format.turn_end.empty() ? std::string::npos : answer.find(format.turn_end, last);
    if (end != std::string::npos) answer.resize(end);
    const ParsedMessage message = parse(format, answer, start);
    expect_calls(message.calls, calls, model.name + ": " + answer);
    if (format.history.content_before_calls && format.channels.opener.empty()) {
      EXPECT_NE(message.content.find("Let me see."), std::string::npos) << model.name << answer;
    }
    if (answer.find("They ask.") != std::string::npos) {
      EXPECT_EQ(message.reasoning, "They ask.") << model.name << ": " << answer;
    }
    ++read_back;
  }
  std::printf("%zu templates render calls that are read back\n", read_back);
  EXPECT_GE(read_back, 55U);
}

TEST(LlamaTemplates, ThoughtsTextAndParallelCallsAreRead) {
  SKIP_WITHOUT_TEMPLATES();
  for (const ModelTemplate& model : templates()) {
    const Format& format = model.format;
    if (!supports_tools(format)) continue;
    for (const std::string& thought : {std::string(), std::string("Hm,\nthey ask.")}) {
      if (!thought.empty() && !thinks(format)) continue;
      for (const std::string& said : {std::string(), std::string("Let me see.")}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{2}}) {
          std::vector<Call> calls = two_calls();
          calls.resize(count);
          const std::string answer = model_answer(format, thought, said, calls);
          const ParsedMessage message = parse(format, answer, start_of(format));
          expect_calls(message.calls, calls, model.name + ": " + answer);
          EXPECT_EQ(message.content, said) << model.name << ": " << answer;
          EXPECT_EQ(message.reasoning, thought) << model.name << ": " << answer;
          expect_any_cut_is_the_same(format, answer, start_of(format), AnswerEnd::stop, count);
        }
      }
    }
  }
}

TEST(LlamaTemplates, MarkersInsideArgumentsAreText) {
  SKIP_WITHOUT_TEMPLATES();
  for (const ModelTemplate& model : templates()) {
    const Format& format = model.format;
    if (!supports_tools(format)) continue;
    // A text cannot contain Gemma's own quote, nor M3's closing tag.
    if (format.calls.shape == CallShape::literals || format.calls.nested_tags) continue;
    const std::vector<Call> calls = calls_with_markers(format);
    const std::string answer = model_answer(format, "", "", calls);
    expect_calls(parse(format, answer, start_of(format)).calls, calls, model.name + ": " + answer);
    expect_any_cut_is_the_same(format, answer, start_of(format), AnswerEnd::stop, 1);
  }
}

TEST(LlamaTemplates, AnswersThatAreCutOffAnywhereAreReadAsFarAsTheyGo) {
  SKIP_WITHOUT_TEMPLATES();
  for (const ModelTemplate& model : templates()) {
    const Format& format = model.format;
    if (!supports_tools(format)) continue;
    const std::vector<Call> calls = two_calls();
    const std::string thought = thinks(format) ? "Hm, they ask." : "";
    const std::string answer = model_answer(format, thought, "Let me see.", calls);
    const ParsedMessage whole = parse(format, answer, start_of(format));
    for (size_t size = 0; size < answer.size(); ++size) {
      const std::string_view part = std::string_view(answer).substr(0, size);
      const ParsedMessage message = parse(format, part, start_of(format), AnswerEnd::length);
      ASSERT_EQ(
          add_up(parse_events(format, part, every_byte(part), start_of(format), AnswerEnd::length)),
          message)
          << model.name << ": " << part;
      ASSERT_LE(message.calls.size(), whole.calls.size()) << model.name << ": " << part;
      for (size_t i = 0; i < message.calls.size(); ++i) {
        ASSERT_EQ(message.calls[i].name, whole.calls[i].name);
        if (message.calls[i].complete) {
          ASSERT_EQ(message.calls[i], whole.calls[i]) << model.name << ": " << part;
        } else {
          ASSERT_EQ(i + 1, message.calls.size()) << model.name << ": " << part;
        }
      }
      // Thinking emitted so far is the beginning of the thought.
      if (message.reasoning.size() <= whole.reasoning.size()) {
        ASSERT_EQ(whole.reasoning.substr(0, message.reasoning.size()), message.reasoning);
      }
    }
  }
}

}  // namespace
}  // namespace stemma::dialect
