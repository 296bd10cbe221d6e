// TemplateTalk: turns a request into the variables of a chat template: messages, tools, and
// settings of thinking.
//
// Templates differ in what they accept. A message that a template refuses is passed in another form
// but never moved: moving a system message to the front would change the whole prompt, and nothing
// of it could be reused.
//
//   a system message that it refuses or loses there  becomes a user message there
//   two user messages in a row that it refuses       become one, with a blank line between
//   calls, results and thinking                      follow its Format (dialect/write_calls.h)
//   tools that it does not write                     are described in the first system message
//
// All of the client's text is marked (part_numbers.h), even names of arguments.
//
// Threading:  immutable; pure functions.
// Cost:       O(the request).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dialect/format.h"
#include "jinja/template.h"
#include "server/api/request.h"
#include "server/chat/part_numbers.h"

namespace stemma::server {

// What a template does with roles, found by rendering small conversations.
struct RoleRules {
  bool system = true;           // A system message may come first.
  bool system_anywhere = true;  // A system message may come between others.
  bool user_runs = true;        // Two user messages may follow each other.
  bool developer = true;        // "developer" is a role of its own.
};

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

class TemplateTalk {
 public:
  TemplateTalk(const jinja::Template& chat, const dialect::Format& format, const RoleRules& rules)
      : chat_(chat), format_(format), rules_(rules) {}

  // The list `messages` of a request.
  std::vector<jinja::Value> messages(const ChatRequest& request, const PartNumbers& numbers) const;
  // The list `tools`; nothing if the template does not write them.
  std::vector<jinja::Value> tools(const ChatRequest& request) const;
  // Adds the settings of thinking that the template knows. Requested ones that it does not know go
  // to `ignored`.
  void add_thinking(const Thinking& thinking, bool keep, Variables& variables,
                    std::vector<std::string>& ignored) const;

 private:
  jinja::Value plain(const Message& message, size_t index, const PartNumbers& numbers) const;
  std::string role_of(const Message& message, bool leading) const;
  void describe_tools(const ChatRequest& request, std::vector<jinja::Value>& messages) const;
  void join_neighbours(std::vector<jinja::Value>& messages) const;

  const jinja::Template& chat_;
  const dialect::Format& format_;
  const RoleRules& rules_;
};

// Converts a client's JSON value for the template; its strings and names carry the mark.
jinja::Value template_value(const Json& json, jinja::Origin origin);
// The schema of a tool's arguments as the model sees it. A custom tool's has one text, `input`.
Json argument_schema(const ToolSpec& tool);

}  // namespace stemma::server
