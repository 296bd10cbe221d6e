// CallGrammar: grammar rules for tool calls in a model's own format.
//
// It is the counterpart of dialect/call_reader.h, which reads everything that the grammar accepts
// as a whole call of one of the tools, with arguments that their schemas allow. Blanks beside
// markers are free within bounds.
//
//   shape       arguments
//   json, named_json, channels   by the schema (constrain/schema)
//   tagged      each property in the order of the schema, required ones always; the value of a text is any text, or one
//               of `enum`; all others are JSON by their schema
//   literals, python             any arguments; schemas are not enforced
//
// Threading:  one thread at a time, together with its builder.
// Ownership:  format and builder outlive it.
// Cost:       the cost of the schemas.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constrain/grammar_builder.h"
#include "constrain/problem.h"
#include "constrain/schema/json_rules.h"
#include "dialect/format.h"
#include "json/json.h"

namespace stemma::server {

// A tool that may be called.
struct CallableTool {
  std::string name;
  std::string place;  // For messages: "tools[2].parameters".
  Json parameters;    // Its schema.
  bool strict = false;
};

class CallGrammar {
 public:
  CallGrammar(const dialect::Format& format, constrain::GrammarBuilder& build,
              constrain::JsonRules& rules)
      : format_(format), build_(build), rules_(rules) {}

  // Makes rules for the arguments of all tools. Returns a Problem if a strict tool has a schema
  // that cannot be enforced.
  std::optional<constrain::Problem> add(const std::vector<CallableTool>& tools);

  // One block of calls, with or without the marker that begins it. `more`: several calls, if the
  // format allows them.
  constrain::Expr block(bool with_opener, bool more);
  // The marker that begins a block; empty: nothing tells calls from text.
  std::string opener() const;
  // A channel's call behind its opener: header and arguments.
  constrain::Expr channel_call();

  // Requirements of the schemas that the grammar does not enforce:
  // "tools[2].parameters/properties/a/pattern".
  const std::vector<std::string>& unenforced() const { return unenforced_; }

 private:
  struct Arguments {
    std::string name;
    constrain::RuleId rule{};
  };
  std::optional<constrain::Problem> add_arguments(const CallableTool& tool);
  constrain::Expr json_call(const Arguments& tool);
  constrain::Expr header(const std::string& name);
  constrain::Expr one_call();
  static std::string first_line(std::string_view marker);
  constrain::Expr behind_first_line(std::string_view marker);
  std::variant<constrain::RuleId, constrain::Problem> tagged(const CallableTool& tool);
  std::optional<constrain::Problem> list_others(const CallableTool& tool,
                                                const std::string& pointer, const Json& schema,
                                                bool (*is_enforced)(std::string_view));
  std::variant<constrain::Expr, constrain::Problem> tagged_value(const CallableTool& tool,
                                                                 const std::string& name,
                                                                 bool is_text, const Json& schema);
  std::variant<constrain::Expr, constrain::Problem> by_schema(const CallableTool& tool,
                                                              const Json& schema,
                                                              const std::string& pointer);
  constrain::Expr open_argument(const std::string& key, bool is_text);
  constrain::RuleId any_tagged();
  constrain::RuleId any_literals();
  constrain::Expr blanks();

  const dialect::Format& format_;
  constrain::GrammarBuilder& build_;
  constrain::JsonRules& rules_;
  std::vector<Arguments> tools_;
  std::optional<constrain::RuleId> literals_;
  std::optional<constrain::RuleId> value_text_;  // Of an argument in tags.
  std::vector<std::string> unenforced_;
};

}  // namespace stemma::server
