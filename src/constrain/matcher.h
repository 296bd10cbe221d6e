// A Matcher follows one answer through a grammar: which bytes may come next, and whether it may end.
//
// Tokens are strings of bytes. A token may end in the middle of a character, and may run over the end of
// one part of the grammar into the next: it is read byte by byte.
//
// A copy is a fork: it goes on by itself. Keeping a copy is the way to take tokens back.
//
// Invariant:  the answer so far can be completed; what was refused changed nothing.
// Threading:  one thread at a time; copies are independent.
// Ownership:  holds the grammar.
// Cost:       50 to 200 ns a byte for most grammars. A copy is one allocation of a few hundred bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "constrain/grammar.h"
#include "constrain/step.h"

namespace stemma::constrain {

class Matcher {
 public:
  explicit Matcher(GrammarPtr grammar);

  // Takes `bytes` as the next part of the answer. If some byte cannot follow, it is false and nothing changed.
  bool accept(std::string_view bytes);
  // What accept() would say.
  bool allows(std::string_view bytes) const;
  // The bytes so far are a whole answer.
  bool may_end() const { return stacks_.may_end; }
  // Nothing can follow: the answer is whole and ends here.
  bool must_end() const { return stacks_.count == 0; }
  // The limit on stacks kept accept() or the start from going on, so a refusal may be wrong. It names
  // GrammarLimits::stacks.
  bool passed_limit() const { return passed_limit_; }

  const Grammar& grammar() const { return *grammar_; }
  const Stacks& stacks() const { return stacks_; }

 private:
  GrammarPtr grammar_;
  Stacks stacks_;
  bool passed_limit_ = false;
};

}  // namespace stemma::constrain
