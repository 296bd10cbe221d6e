// A conversation from any API: messages with their tool calls and thinking, the offered tools, and
// the form that the answer must have.
//
// Each API (openai/, anthropic/, responses/, ollama/) decodes its bodies into these values. Only
// chat/ turns them into a prompt, so every API has the same templates, the same constraints and the
// same reuse.
//
// The client's order of JSON keys (tools, arguments) is kept: it becomes part of the prompt.
//
// Threading:  plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.h"

namespace stemma::server {

// cache_control: keep the prompt up to the end of the part that has it.
struct CacheControl {
  uint64_t ttl_ns = 300'000'000'000U;  // "5m", the default, or "1h".
};

struct ContentPart {
  std::string text;
  std::optional<CacheControl> cache_control;
};

// A call of a tool, as the client sent it back.
struct ToolCall {
  std::string id;  // The server's own id, if the client kept it; it may lead to a transcript.
  std::string name;
  std::string arguments;  // JSON text as the client wrote it; a custom tool's input as plain text.
  bool custom = false;
};

struct Message {
  std::string role;  // system, developer, user, assistant or tool.
  std::string name;  // May be empty.
  std::vector<ContentPart> parts;
  bool plain = true;  // The content was one string, not a list of parts.
  std::optional<CacheControl> cache_control;
  // Where the request has it, for reports: "system", "input[2]". Empty: "messages[I]", by its place
  // in the list.
  std::string place = {};

  // For an assistant's message.
  std::string reasoning;  // Its thinking, if the client sent it back.
  std::vector<ToolCall> calls;
  // Identifies the answer that this message was, if the client kept it: an Anthropic signature, the
  // id or encrypted content of a Responses item. Call ids are in `calls`. Empty: unknown.
  std::string transcript_id;

  // For a tool's message: the call that it answers, and whether the tool failed.
  std::string call_id;
  bool is_error = false;

  std::string text() const;  // All parts, joined.
};

struct ToolSpec {
  std::string name = {};
  std::string description = {};
  Json parameters = {};                    // The JSON schema of its arguments; null: any object.
  std::string schema_name = "parameters";  // How the API calls this field.
  bool strict = false;                     // Schema keywords that cannot be enforced are errors.
  bool custom = false;  // Its input is plain text; the model sees the arguments {"input": text}.
  // The field with a grammar for a custom tool's input, which is not enforced; empty: none.
  std::string unenforced = {};
  std::optional<CacheControl> cache_control = {};
};

struct ToolChoice {
  enum class Kind : uint8_t {
    automatic,  // The model decides.
    none,       // Tools are described but must not be called.
    required,   // At least one call.
    named,      // A call of the one tool in `names`.
  };
  Kind kind = Kind::automatic;
  std::vector<std::string> names;  // Only these may be called; empty: all.
};

// The form that the text of an answer must have.
struct AnswerForm {
  enum class Kind : uint8_t { free, json_object, json_schema, gbnf };
  Kind kind = Kind::free;
  Json schema;          // json_schema
  bool strict = false;  // json_schema: a keyword that cannot be enforced is an error.
  std::string grammar;  // gbnf
};

struct Thinking {
  std::optional<bool> wanted;             // Nothing: the template's default.
  std::string effort;                     // "low", "medium", "high" ...; empty: not given.
  std::optional<uint32_t> budget_tokens;  // A limit for tokens of thinking.
  // How the request names these three, for the header that lists what has no effect. Empty: it
  // does not have it.
  std::string wanted_name = "thinking";
  std::string effort_name = "reasoning_effort";
  std::string budget_name = "thinking_budget";
  bool apart = true;  // false: sent as text, with its markers.
};

}  // namespace stemma::server
