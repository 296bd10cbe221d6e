// A Matcher follows one answer through a grammar: which bytes may come next, and whether it may
// end.
//
// Tokens are strings of bytes. A token may end in the middle of a character, and may run over the
// end of one part of the grammar into the next: it is read byte by byte.
//
// A copy is a fork that goes on independently. To take tokens back, keep a copy.
//
// Invariant:  the answer so far can be completed; refused bytes change nothing.
// Threading:  one thread at a time; copies are independent.
// Ownership:  holds the grammar.
// Cost:       50 to 200 ns a byte for most grammars. A token that takes more than about 2 ms is
//             refused, unless it is one byte. A copy is one allocation of a few hundred bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "constrain/grammar.h"
#include "constrain/step.h"

namespace stemma::constrain {

class Matcher {
 public:
  explicit Matcher(GrammarPtr grammar);

  // Takes `bytes` as the next part of the answer. If some byte cannot follow, returns false and
  // changes nothing.
  bool accept(std::string_view bytes);
  // What accept() would return.
  bool allows(std::string_view bytes) const;
  // The bytes so far are a whole answer.
  bool may_end() const { return stacks_.may_end; }
  // Nothing can follow: the answer is whole and ends here.
  bool must_end() const { return stacks_.count == 0; }
  // accept() or the start hit GrammarLimits::stacks or a limit of work, so a refusal may be wrong.
  bool passed_limit() const { return passed_limit_; }

  const Grammar& grammar() const { return *grammar_; }
  const Stacks& stacks() const { return stacks_; }

 private:
  GrammarPtr grammar_;
  Stacks stacks_;
  bool passed_limit_ = false;
};

}  // namespace stemma::constrain
