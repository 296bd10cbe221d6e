// SchemaCompiler: the work behind json_schema.h.
//
// A value must satisfy several schemas at once (`allOf`, a `$ref` with neighbours, a property that
// two of them declare). So the unit of work is a list of schemas, a Conjunction, which becomes one
// rule. Conjunctions are known by the schemas in them, so a recursive `$ref` ends in a rule that
// exists already. They wait in a queue instead of calling each other: no schema is deep enough to
// overflow a stack.
//
//   schema_compiler.cc   conjunctions: allOf, anyOf, types
//   schema_reference.cc  $ref
//   schema_choices.cc    enum and const
//   schema_object.cc     members
//   schema_array.cc      items
//   schema_scalar.cc     strings and numbers
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constrain/schema/json_schema.h"
#include "constrain/schema/number_range.h"
#include "constrain/schema/regex.h"

namespace stemma::constrain {

// A schema that must hold, and where it stands.
struct SchemaPart {
  const Json* schema = nullptr;
  std::string pointer;
  uint8_t split = 0;  // Its anyOf (1) or oneOf (2) is already split into alternatives.

  const Json* find(std::string_view keyword) const { return schema->find(keyword); }
};
using Conjunction = std::vector<SchemaPart>;

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& build, JsonRules& rules, const Json& root,
                 const SchemaOptions& options)
      : build_(build), rules_(rules), root_(root), options_(options) {}

  std::variant<SchemaRule, Problem> run();

 private:
  // Bits of a set of types. A number that may have a fraction is both.
  enum Type : uint8_t {
    kNull = 1,
    kBoolean = 2,
    kString = 4,
    kInteger = 8,
    kFraction = 16,
    kArray = 32,
    kObject = 64,
    kAnyType = 127,
  };
  struct StringFacts {
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    std::vector<Regex> patterns;  // Of `pattern` and `format`.
  };
  // A member that is declared or required.
  struct MemberFacts {
    std::string name;
    Conjunction value;
    bool required = false;
    bool possible = true;
  };
  struct ObjectFacts {
    std::vector<MemberFacts> members;
    Conjunction others;  // What members that are not declared must satisfy.
    bool open = true;
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    std::optional<Expr> key;  // If names of members that are not declared have a form.
  };

  // --- problems
  void fail(std::string message, const std::string& pointer);
  void leave_out(std::string_view keyword, const SchemaPart& part);
  bool failed() const { return problem_.has_value(); }

  // --- conjunctions
  Expr value(Conjunction parts);
  void define(RuleId rule, Conjunction parts);
  bool flatten(Conjunction& parts);
  bool add_reference(const SchemaPart& part, Conjunction& parts);
  std::optional<SchemaPart> resolve(const std::string& reference, const std::string& pointer);
  std::optional<Expr> split_alternatives(const Conjunction& parts);
  Expr one_shape(const Conjunction& parts);
  uint8_t types_of(const Conjunction& parts);
  uint8_t types_of_part(const SchemaPart& part);
  static uint8_t implied_types(const SchemaPart& part);
  uint8_t type_bit(const std::string& name, const SchemaPart& part);
  void check_keywords(const SchemaPart& part);

  // --- enum and const
  std::optional<std::vector<const Json*>> choices_of(const Conjunction& parts);
  bool choice_fits(const Json& choice, uint8_t types, const Conjunction& parts);
  Expr one_of_choices(const std::vector<const Json*>& choices);

  // --- kinds of values
  Expr object(const Conjunction& parts);
  void add_members(const Conjunction& parts, ObjectFacts& facts);
  using Names = std::unordered_map<std::string_view, const Json*>;
  Conjunction member_value(const Conjunction& parts, const std::string& name,
                           const std::vector<Names>& names);
  void other_members(const Conjunction& parts, ObjectFacts& facts);
  void pattern_members(const Conjunction& parts, ObjectFacts& facts);
  void named_members(const Conjunction& parts, ObjectFacts& facts);
  Expr member_chain(ObjectFacts& facts);
  Expr array(const Conjunction& parts);
  Conjunction item_at(const Conjunction& parts, size_t index);
  Expr item_chain(const Conjunction& parts, size_t prefix, uint32_t min, uint32_t max);
  Expr string(const Conjunction& parts);
  StringFacts string_facts(const Conjunction& parts);
  Expr number(const Conjunction& parts, bool whole_only);
  NumberRange number_range(const Conjunction& parts, bool whole_only);

  uint32_t count(const SchemaPart& part, std::string_view keyword, uint32_t otherwise);
  static bool is_false(const Json* schema) {
    return schema != nullptr && schema->boolean() != nullptr && !*schema->boolean();
  }
  static bool impossible(const Conjunction& parts);

  GrammarBuilder& build_;
  JsonRules& rules_;
  const Json& root_;
  const SchemaOptions& options_;
  std::map<std::vector<std::pair<const Json*, uint8_t>>, RuleId> known_;
  std::deque<std::pair<RuleId, Conjunction>> waiting_;
  std::map<std::string, SchemaPart> references_;
  std::vector<Unenforced> unenforced_;
  std::optional<Problem> problem_;
  uint64_t work_ = 0;
};

// A JSON pointer to what is called `token` below another pointer.
std::string pointer_below(const std::string& pointer, std::string_view token);
// Exactly one of these texts. Shared beginnings are shared.
Expr one_of_texts(GrammarBuilder& build, std::vector<std::string> texts);
// A string in quotes that is none of `names`.
Expr string_except(GrammarBuilder& build, const std::vector<std::string>& names);
// The pattern that a `format` stands for; empty if it is not known.
std::string_view pattern_of_format(std::string_view format);

}  // namespace stemma::constrain
