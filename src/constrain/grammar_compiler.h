// Compiles a builder's tree to the program of a Grammar. Only grammar_compiler.cc and its tests
// need this.
//
// In five passes, each linear in the size of the tree: which expressions may read nothing; whether
// a rule calls itself before it reads a byte; the instructions, each rule from its end to its
// beginning; how many frames each state needs to get to the end of its rule; how many bytes a round
// of each loop has at least.
// Threading: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/grammar_builder.h"
#include "constrain/problem.h"

namespace stemma::constrain {

class GrammarCompiler {
 public:
  explicit GrammarCompiler(GrammarBuilder& builder) : from_(builder) {}
  std::variant<GrammarPtr, Problem> run(RuleId root);
  std::optional<RuleId> culprit() const { return culprit_; }

 private:
  using Node = GrammarBuilder::Node;
  using Kind = GrammarBuilder::Kind;
  using Op = Grammar::Op;
  static constexpr uint32_t kNone = GrammarBuilder::kNone;
  // The state that returns from a rule. All rules end in it.
  static constexpr uint32_t kBack = 0;

  struct CompiledRule {
    uint32_t entry = kNone;
    uint32_t begin = 0;  // Its instructions.
    uint32_t end = 0;
    std::vector<uint32_t> callers;
  };

  void mark_nullable();
  std::vector<uint32_t> reachable_rules(uint32_t root) const;
  std::optional<Problem> check_left_recursion(uint32_t root);
  void left_calls(uint32_t node, std::vector<uint32_t>& calls) const;

  void emit_rules(uint32_t root);
  uint32_t emit(uint32_t node, uint32_t next);
  uint32_t emit_text(const Node& node, uint32_t next);
  uint32_t emit_repeat(const Node& node, uint32_t next);
  uint32_t emit_call(uint32_t rule, uint32_t next);
  uint32_t put(Grammar::Instruction instruction);

  bool find_needs();
  uint32_t need_of(const Grammar::Instruction& instruction) const;
  bool find_least_bytes();
  uint32_t least_bytes_of(const Grammar::Instruction& instruction,
                          const std::vector<uint32_t>& least) const;
  template <class Judge>
  bool settle_rules(Judge judge);
  void number_bytes();
  std::string name_of(uint32_t rule) const;

  GrammarBuilder& from_;
  std::unique_ptr<Grammar> out_;
  std::vector<CompiledRule> rules_;
  std::vector<uint32_t> order_;  // Rules, in the order they were met.
  uint32_t current_ = 0;         // The rule that is being emitted.
  std::string failure_;
  std::optional<RuleId> culprit_;  // The rule that a problem is about.
};

}  // namespace stemma::constrain
