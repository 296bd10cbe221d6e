// Compiles a grammar in GBNF, llama.cpp's notation, to a Grammar.
//
//   root  ::= "[" item ("," item)* "]"     # comments, groups, alternatives with |
//   item  ::= [a-z]{1,8} | "\"" [^"\n]* "\""
//
// Also supported: `.`, ? * + {m} {m,} {m,n}, the escapes \n \r \t \\ \" \[ \] \xXX \uXXXX
// \UXXXXXXXX. Characters are Unicode characters, written as UTF-8. The rule `root` is the whole
// answer. A rule that calls itself before it reads anything is refused, and so are tokens in angle
// brackets: a grammar only knows bytes.
//
// Threading:  pure functions.
// Cost:       linear in the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "constrain/grammar.h"
#include "constrain/grammar_builder.h"
#include "constrain/problem.h"

namespace stemma::constrain {

struct GbnfOptions {
  uint32_t max_bytes = 1U << 20U;
  GrammarLimits limits{};
};

// Problem: its place is "line 3, column 7".
std::variant<GrammarPtr, Problem> compile_gbnf(std::string_view text,
                                               const GbnfOptions& options = {});

// The same as a rule of a larger grammar. `options.limits` apply to this grammar alone; the builder
// has its own.
std::variant<RuleId, Problem> add_gbnf(GrammarBuilder& build, std::string_view text,
                                       const GbnfOptions& options = {});

}  // namespace stemma::constrain
