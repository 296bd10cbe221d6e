// The regular expressions of JSON schema's `pattern`, as a tree, and as the body of a JSON string.
//
// Known: characters, `.`, classes, \d \w \s and their opposites, escapes with \x \u \u{...} and \c,
// groups of any kind but look-around, alternatives, greedy and lazy repetitions, `^` at the
// beginning and `$` at the end of the whole or of one of its alternatives. Not known, and refused
// by name: look-around, back references, word borders, \p{...}, anchors elsewhere.
//
// A pattern matches if any part of the text matches, as JSON schema says.
//
// Threading:  immutable values.
// Cost:       linear in the pattern; repetitions are counted, not copied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constrain/code_points.h"
#include "constrain/grammar_builder.h"
#include "constrain/problem.h"

namespace stemma::constrain {

struct RegexNode {
  enum class Kind : uint8_t { set, sequence, either, repeat, begin, end };
  Kind kind = Kind::sequence;
  CodePointSet set{};
  std::vector<RegexNode> children{};
  uint32_t min = 0;
  uint32_t max = 0;
};

// An alternative of the whole, without its anchors.
struct RegexWay {
  RegexNode body;
  bool from_begin = false;
  bool to_end = false;
};

struct Regex {
  std::vector<RegexWay> ways;

  // Characters that a matching text has at least and at most (kUnbounded).
  uint32_t min_length() const;
  uint32_t max_length() const;
  // If it is a repetition of one set and nothing else, that node; otherwise null.
  const RegexNode* single_repeat() const;
};

// Problem: its place is the offset in the pattern, "character 7".
std::variant<Regex, Problem> parse_regex(std::string_view pattern);

// The texts that match, as the inside of a JSON string. Every character has one spelling.
Expr regex_in_json(GrammarBuilder& build, const Regex& regex);
// Whether `text` matches.
bool regex_matches(const Regex& regex, std::string_view text);

}  // namespace stemma::constrain
