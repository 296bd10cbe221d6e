// A script for ScriptedModel and the tool that it calls: a task of numbered steps, with a thought,
// a sentence and a call for each. The prompt's last "step N" says which step it is.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "support/scripted_rig.h"

namespace stemma::test {

// A template that shows thinking again behind the last question.
inline std::string step_template() {
  std::ifstream in("tests/templates/last_query.jinja", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

// The number behind the last "step " of the prompt.
inline uint32_t step_of(std::string_view prompt) {
  const size_t at = prompt.rfind("step ");
  uint32_t step = 0;
  for (size_t i = at == prompt.npos ? prompt.size() : at + 5;
       i < prompt.size() && prompt[i] >= '0' && prompt[i] <= '9'; ++i) {
    step = step * 10 + static_cast<uint32_t>(prompt[i] - '0');
  }
  return step;
}

// An answer that thinks and calls a tool. Clients send its JSON back without the blanks, and the
// tokenizer then makes other tokens of it.
inline std::string do_step(std::string_view prompt) {
  const std::string step = std::to_string(step_of(prompt));
  return "<think>\nworking on step " + step + " of many\n</think>\n\nlooking at number " + step +
         "\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"line\": " + step +
         ", \"path\": \"notes.txt\"}}\n</tool_call>";
}

inline nlohmann::json step_arguments() {
  return {{"type", "object"},
          {"properties", {{"path", {{"type", "string"}}}, {"line", {{"type", "integer"}}}}}};
}

inline ScriptedRigOptions step_rig(EngineOptions engine) {
  ScriptedRigOptions options;
  options.engine = engine;
  options.engine.context_tokens = 32'768;
  options.chat_template = step_template();
  return options;
}

}  // namespace stemma::test
