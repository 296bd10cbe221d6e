// A GrammarBuilder makes a grammar from expressions: bytes, sequences, alternatives, repetitions
// and calls of rules.
//
//   GrammarBuilder build;
//   const RuleId list = build.rule();
//   build.define(list, build.sequence({build.text("("),
//                                      build.repeat(build.call(list), 0, 9), build.text(")")}));
//   auto grammar = build.finish(list);   // (), (()), (()(())) ...
//
// Expressions form a tree: each may be used in one place only. Make a rule for an expression that
// is needed twice. A call at the end of a rule costs no frame, so a rule may also be a state of a
// finite automaton.
//
// The builder never fails half-way: it remembers an exceeded limit, and finish() reports it.
//
// Threading:  one thread at a time.
// Cost:       finish() takes time in proportion to the size of the tree, about 100 ns a node.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constrain/byte_set.h"
#include "constrain/grammar.h"
#include "constrain/problem.h"

namespace stemma::constrain {

enum class RuleId : uint32_t {};
enum class Expr : uint32_t {};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits = {}) : limits_(limits) {}

  Expr nothing();                    // Reads no byte.
  Expr never();                      // Matches no text at all.
  Expr text(std::string_view text);  // These bytes.
  Expr byte(const ByteSet& set);     // One byte of the set.
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) { return sequence(std::span(parts)); }
  Expr either(std::span<const Expr> choices);  // never() if empty.
  Expr either(std::initializer_list<Expr> choices) { return either(std::span(choices)); }
  // `max` may be kUnbounded. Requires: min <= max.
  Expr repeat(Expr part, uint32_t min, uint32_t max);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr call(RuleId rule);

  // A rule without a definition yet. `name` is for messages.
  RuleId rule(std::string name = {});
  void define(RuleId rule, Expr body);
  RuleId rule_of(Expr body) {
    const RuleId made = rule();
    define(made, body);
    return made;
  }

  // Whether a limit was passed: a caller that builds a lot may stop early.
  bool failed() const { return !failure_.empty(); }
  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }

  // The grammar of `root`. The builder is used up. Problem: a limit was passed; a rule was never
  // defined, calls itself before it reads a byte, or `root` matches no text within the limit on
  // depth. `culprit`, if given, is set to the rule that has the problem.
  std::variant<GrammarPtr, Problem> finish(RuleId root, std::optional<RuleId>* culprit = nullptr);

 private:
  friend class GrammarCompiler;
  enum class Kind : uint8_t { nothing, never, text, byte, sequence, either, repeat, call };
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  struct Node {
    Kind kind;
    bool nullable = false;    // Set by finish(): it may read nothing.
    uint16_t height = 0;      // Of the tree below.
    uint32_t parent = kNone;  // Or the rule, for the root of a rule.
    uint32_t next = kNone;    // The next child of the same parent.
    uint32_t first = kNone;   // The first child.
    uint32_t a = 0;           // Text: where it begins. Byte: the set. Repeat: min. Call: the rule.
    uint32_t b = 0;           // Text: its bytes. Repeat: max. Sequence: children.
    bool is_root = false;     // Of a rule.
  };
  struct Rule {
    std::string name;
    uint32_t body = kNone;
    bool nullable = false;
  };

  Expr add(Node node, std::span<const Expr> children);
  void fail(std::string message);
  uint32_t set_index(const ByteSet& set);
  Node& node(Expr expr) { return nodes_[static_cast<uint32_t>(expr)]; }

  GrammarLimits limits_;
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  std::vector<ByteSet> sets_;
  std::map<ByteSet, uint32_t> set_indexes_;
  std::string texts_;
  std::string failure_;
};

}  // namespace stemma::constrain
