// AnswerRules: tells the scheduler which tokens an answer may have.
//
// A request whose answer must follow a grammar carries an AnswerRules; each of its choices has its
// own TokenRules. The scheduler draws a token and asks allows(). Only if it is refused does the
// scheduler draw again, among the tokens of mask(). Most tokens of a good model pass the first
// check, which takes microseconds.
//
// Invariant:  the result of allows() stays true until the next accept(). A TokenRules never refuses
//             everything: when no token may follow, may_end() is true.
// Threading:  AnswerRules is immutable and thread-safe; a TokenRules is used by the engine's thread
//             alone.
// Cost:       allows(): microseconds. mask(), for 150,000 tokens: 1 to 3 ms for a new mask, less
//             than 1 ms for a known one. A grammar made to be slow costs at most about 2 and 25 ms.
#pragma once

#include <memory>

#include "constrain/token_masks.h"
#include "stemma/ids.h"

namespace stemma::server {

class TokenRules {
 public:
  virtual ~TokenRules() = default;

  // Whether the answer may go on with `token`. For tokens that end an answer, ask may_end().
  virtual bool allows(Token token) = 0;
  // All tokens that allows() would accept; null: every token. For a grammar that is very slow to
  // check, only some of them (constrain/token_masks.h).
  virtual std::shared_ptr<const constrain::TokenMask> mask() = 0;
  // Adds `token` to the answer.
  virtual void accept(Token token) = 0;
  // Whether the answer may end here.
  virtual bool may_end() const = 0;
  // Whether the answer must end here because nothing may follow.
  virtual bool must_end() const = 0;
};

class AnswerRules {
 public:
  virtual ~AnswerRules() = default;
  virtual std::unique_ptr<TokenRules> begin() const = 0;
};

}  // namespace stemma::server
