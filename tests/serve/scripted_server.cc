// A server for tests with real clients: everything is real except the model, which answers by a
// script.
//
//   scripted_server RULES.json [--context TOKENS] [--sequences N] [--no-reuse]
//
// Prints url=http://127.0.0.1:PORT and serves until its standard input ends. RULES.json is a list;
// the first rule whose conditions all hold decides what is said:
//
//   {"user": "a text that the prompt has", "offers": "a tool that it offers", "results": 3, "say": "<tool_call>..."}
//
// `results`: this many results of tools follow the last occurrence of `user`. In `say`, {n} is that
// number plus one.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/app.h"
#include "server/chat/chat.h"
#include "server/http/server.h"
#include "server/schedule/scheduler.h"
#include "stemma/clock.h"
#include "support/engine_kinds.h"
#include "support/scripted_model.h"

namespace stemma::test {
namespace {

// As Hermes and Qwen write tools, calls and thinking.
constexpr const char* kTemplate =
    R"({%- set last = namespace(user=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools -%}
{{- '<|im_start|>system\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content + '\n\n' -}}{%- endif -%}
{{- '# Tools\n\nYou may call tools. Their definitions:\n<tools>' -}}
{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\n</tools>\n\nWrite each call as JSON with name and arguments between <tool_call> tags.<|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- if m.reasoning_content and loop.index0 > last.user -%}
{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' -}}
{%- endif -%}
{{- m.content or '' -}}
{%- for call in m.tool_calls or [] -%}
{%- if not loop.first or m.content -%}{{- '\n' -}}{%- endif -%}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif not (loop.first and m.role == 'system') -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

struct Rule {
  std::string user;
  std::string offers;
  int results = -1;  // Any number.
  std::string say;
};

std::vector<Rule> read_rules(const char* file) {
  std::ifstream in(file);
  const auto parsed = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  std::vector<Rule> rules;
  for (const auto& each : parsed) {
    rules.push_back({.user = each.value("user", ""),
                     .offers = each.value("offers", ""),
                     .results = each.value("results", -1),
                     .say = each.at("say")});
  }
  return rules;
}

int results_behind(std::string_view prompt, size_t from) {
  constexpr std::string_view kResult = "<tool_response>\n";
  int count = 0;
  for (size_t at = prompt.find(kResult, from); at != prompt.npos;
       at = prompt.find(kResult, at + 1)) {
    ++count;
  }
  return count;
}

std::string say(const std::vector<Rule>& rules, std::string_view prompt) {
  const size_t tools_end = prompt.find("\n</tools>");
  for (const Rule& rule : rules) {
    const size_t user = rule.user.empty() ? 0 : prompt.rfind(rule.user);
    if (user == prompt.npos) continue;
    if (!rule.offers.empty()) {
      const size_t tool = prompt.find("\"name\": \"" + rule.offers + "\"");
      if (tools_end == prompt.npos || tool == prompt.npos || tool > tools_end) continue;
    }
    const int results = results_behind(prompt, user);
    if (rule.results >= 0 && rule.results != results) continue;
    std::string text = rule.say;
    for (size_t at = text.find("{n}"); at != text.npos; at = text.find("{n}", at)) {
      text.replace(at, 3, std::to_string(results + 1));
    }
    return text;
  }
  return "No rule fits.";
}

int serve(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: scripted_server RULES.json [--context N] [--sequences N]\n");
    return 2;
  }
  ScriptedModel::Options options;
  options.engine = full_engine();
  options.engine.context_tokens = 1U << 20U;
  options.batch_tokens = 2048;
  options.chat_template = kTemplate;
  // A clock that stands still: what is reused does not depend on how fast this machine is.
  const ManualClock still;
  server::SchedulerOptions schedule;
  schedule.cache.clock = &still;
  for (int i = 2; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--no-reuse") {
      schedule.reuse = false;
    } else if (i + 1 < count && word == "--context") {
      options.engine.context_tokens = static_cast<uint32_t>(std::atol(words[++i]));
    } else if (i + 1 < count && word == "--sequences") {
      options.engine.sequences = static_cast<uint32_t>(std::atol(words[++i]));
    } else {
      std::fprintf(stderr, "scripted_server: what is %s?\n", words[i]);
      return 2;
    }
  }
  const std::vector<Rule> rules = read_rules(words[1]);
  ScriptedModel model(options, [&](std::string_view prompt) { return say(rules, prompt); });
  std::string why;
  const auto chat = server::Chat::create(model, "", why);
  const auto scheduler =
      chat == nullptr ? nullptr : server::Scheduler::create(model, schedule, why);
  if (scheduler == nullptr) {
    std::fprintf(stderr, "scripted_server: %s\n", why.c_str());
    return 1;
  }
  server::AppOptions app_options;
  app_options.any_model = true;
  app_options.log = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  server::App app(model, *scheduler, *chat, app_options);
  server::HttpOptions http_options;
  http_options.log = app_options.log;
  app.connect(http_options);
  auto http = server::HttpServer::create(
      http_options,
      [&](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
        app.handle(std::move(request), std::move(reply));
      },
      &why);
  if (!http || !(*http)->start()) {
    std::fprintf(stderr, "scripted_server: %s\n", why.c_str());
    return 1;
  }
  std::printf("url=http://127.0.0.1:%u\n", (*http)->port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  scheduler->stop();
  (*http)->stop();
  return 0;
}

}  // namespace
}  // namespace stemma::test

int main(int count, char** words) { return stemma::test::serve(count, words); }
