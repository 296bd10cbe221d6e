// Turns a conversation with tool calls into the messages that a model's template expects.
//
// Templates disagree about history: arguments as objects or as text, content beside calls, several
// calls in one message, results, ids, and where thinking goes. The Format says what a template
// needs:
//
// - A template that renders one call of a message gets one message a call, each followed by its
// result.
// - A template that renders no calls gets them as text in the content, written as the model writes
// them.
//  - A template that loses results gets them as user messages.
// - Thinking goes into the field that the template reads; where it reads none, thinking is left
// out.
//
// If a message is written, rendered and then parsed as an answer, the result is the same message.
//
// Threading:  pure functions.
// Ownership:  the caller owns the values.
// Cost:       O(bytes).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dialect/format.h"
#include "jinja/value.h"

namespace stemma::dialect {

struct Call {
  std::string id;
  std::string name;
  std::string arguments;  // A JSON object. Anything else goes to the template as text.

  bool operator==(const Call&) const = default;
};

struct Message {
  std::string role = {};
  std::string content = {};
  std::string reasoning = {};
  std::vector<Call> calls = {};
  std::string call_id = {};    // role "tool": the call that this is the result of.
  std::string tool_name = {};  // role "tool": may be empty if the call is in the conversation.
  jinja::Origin origin = jinja::kNoOrigin;  // Marks the message's words in the rendered text.
};

// The value of the template's variable `messages`, as a list of dicts.
std::vector<jinja::Value> write_messages(const Format& format, std::span<const Message> messages);

// The calls as the model itself would write them.
std::string write_calls_as_text(const Format& format, std::span<const Call> calls);

}  // namespace stemma::dialect
