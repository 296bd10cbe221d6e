// AnswerTokens: which special tokens matter to the parser of an answer.
//
// A model writes markers such as <tool_call> with tokens that are special in many vocabularies, and
// the text of special tokens is normally not part of an answer. The parser looks for these texts,
// so they are printed.
//
// Threading:  immutable.
// Cost:       made once, in a pass over the special tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dialect/format.h"
#include "engine/language_model.h"

namespace stemma::server {

struct AnswerTokens {
  std::shared_ptr<const std::vector<Token>> printed;  // Ascending; null: none.
  // What ends a turn that calls tools, besides the model's own end tokens: tokens, and texts of
  // several tokens.
  std::vector<Token> end_tokens;
  std::vector<std::string> end_texts;
};

AnswerTokens answer_tokens(const engine::LanguageModel& model, const dialect::Format& format);

}  // namespace stemma::server
