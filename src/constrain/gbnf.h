// From a grammar in GBNF, llama.cpp's notation, to a Grammar.
//
//   root  ::= "[" item ("," item)* "]"     # comments, groups, alternatives with |
//   item  ::= [a-z]{1,8} | "\"" [^"\n]* "\""
//
// Also known: `.`, ? * + {m} {m,} {m,n}, the escapes \n \r \t \\ \" \[ \] \xXX \uXXXX \UXXXXXXXX. Characters are
// Unicode characters, written as UTF-8. The rule `root` is the whole answer. A rule that calls itself before
// it reads anything is refused, and so are tokens in angle brackets: a grammar knows bytes only.
//
// Threading:  pure functions.
// Cost:       linear in the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "constrain/grammar.h"
#include "constrain/problem.h"

namespace stemma::constrain {

struct GbnfOptions {
  uint32_t max_bytes = 1U << 20U;
  GrammarLimits limits{};
};

// Problem: its place is "line 3, column 7".
std::variant<GrammarPtr, Problem> compile_gbnf(std::string_view text,
                                               const GbnfOptions& options = {});

}  // namespace stemma::constrain
