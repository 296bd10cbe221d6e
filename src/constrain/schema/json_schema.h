// From a JSON schema to a grammar: every answer that it lets through is valid under the schema.
//
// Draft 2020-12, with what older drafts, OpenAPI and tools of agents write differently
// (`definitions`, lists as `items`, `nullable`). docs/ARCHITECTURE.md lists the keywords.
//
// The grammar may be narrower than the schema, never wider, as far as keywords are enforced:
//  - Members come in the order of the schema; those that are not declared come last.
//  - An object that declares properties and says nothing of others has no others (`open_objects`).
//  - A schema without `type` has the types that its other keywords speak of.
//  - `oneOf` is `anyOf`.
//  - Numbers have no more than 16 digits before the point and 16 behind it; with bounds, 15 in all.
// - Names of members, values of `enum`, and strings with a pattern have one spelling each. A name
// may come twice among members that are not declared: no automaton of this size can remember them.
//
// What cannot be enforced is listed, or refused by name where the caller is strict. A schema that
// makes no sense (an unknown type, a reference to nowhere) is always refused.
//
// Threading:  pure functions.
// Cost:       about 1 ms for 1 KB of schema at most; 500 KB take well under a second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/grammar_builder.h"
#include "constrain/problem.h"
#include "constrain/schema/json_rules.h"
#include "json/json.h"

namespace stemma::constrain {

struct SchemaOptions {
  Whitespace whitespace = Whitespace::bounded;
  // Objects may have members beyond those that they declare, where the schema does not say.
  bool open_objects = false;
  // A keyword that cannot be enforced is a Problem.
  bool strict = false;
  uint32_t max_bytes = 4U << 20U;  // Of the schema's text.
  uint32_t max_values = 500'000;   // Of the schema, as JSON values.
  uint32_t max_depth = 200;        // Of the schema's text.
  GrammarLimits limits{};
};

// A keyword that the grammar does not enforce, and where it stands.
struct Unenforced {
  std::string keyword;
  std::string pointer;
  bool operator==(const Unenforced&) const = default;
};

struct CompiledSchema {
  GrammarPtr grammar;
  std::vector<Unenforced> unenforced;
};

// Problem: its place is a JSON pointer into the schema.
std::variant<CompiledSchema, Problem> compile_schema(const Json& schema,
                                                     const SchemaOptions& options = {});
std::variant<CompiledSchema, Problem> compile_schema(std::string_view text,
                                                     const SchemaOptions& options = {});

// The same as a rule of a larger grammar, such as one with the markers of a tool call around it.
// `options.limits` does not count here: the builder has its own.
struct SchemaRule {
  RuleId rule{};
  std::vector<Unenforced> unenforced;
};
std::variant<SchemaRule, Problem> add_schema(GrammarBuilder& build, JsonRules& rules,
                                             const Json& schema, const SchemaOptions& options);

// Any JSON object: what `{"type": "json_object"}` asks for.
GrammarPtr any_json_object(Whitespace whitespace = Whitespace::bounded);

}  // namespace stemma::constrain
