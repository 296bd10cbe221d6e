// The rules that every JSON grammar needs, each made when it is first asked for.
//
// Numbers have at most 16 digits before the point and 16 behind it, and exponents of two digits;
// integers have at most 18 digits. So an answer cannot go on with digits for ever, and readers
// understand it. Strings are valid UTF-8 without lone surrogates. Whitespace is bounded wherever it
// is allowed.
//
// Threading: one thread at a time, that of its builder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "constrain/grammar_builder.h"
#include "json/json.h"

namespace stemma::constrain {

enum class Whitespace : uint8_t {
  none,     // {"a":[1,2]}
  bounded,  // Where JSON allows it: nothing, a space, or a new line and up to 20 spaces or tabs.
};

class JsonRules {
 public:
  JsonRules(GrammarBuilder& build, Whitespace whitespace)
      : build_(build), whitespace_(whitespace) {}

  Expr space();      // What may stand between tokens.
  Expr any_value();  // Any JSON.
  Expr any_object();
  Expr any_array();
  Expr any_string();
  Expr any_number();
  Expr any_integer();
  Expr boolean();
  Expr null();
  // One character of a string, in any spelling.
  Expr character();
  // Exactly this value. Objects keep the order of their members; numbers and strings have one
  // spelling.
  Expr exactly(const Json& value);
  // The string as it stands in JSON text, with quotes.
  static std::string quoted(std::string_view text);
  // [ item , item ... ]
  Expr list(Expr first, Expr others, uint32_t min, uint32_t max);

  GrammarBuilder& build() { return build_; }

 private:
  Expr shared(std::optional<RuleId>& rule, Expr (JsonRules::*make)());
  Expr make_space();
  Expr make_value();
  Expr make_object();
  Expr make_array();
  Expr make_string();
  Expr make_character();
  Expr make_number();
  Expr make_integer();

  GrammarBuilder& build_;
  Whitespace whitespace_;
  std::optional<RuleId> space_;
  std::optional<RuleId> value_;
  std::optional<RuleId> object_;
  std::optional<RuleId> array_;
  std::optional<RuleId> string_;
  std::optional<RuleId> character_;
  std::optional<RuleId> number_;
  std::optional<RuleId> integer_;
};

}  // namespace stemma::constrain
