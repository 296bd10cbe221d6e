// Turns what a request wants of an answer into the grammar of all bytes that the model may write.
//
//   wanted                         the answer
//   a form (JSON, a schema, GBNF)  thinking, then text of that form
//   a call, any or a named one     thinking, then calls at once
//   calls if the model likes       text in which every call that begins calls an existing tool
//                                  with arguments that follow its schema; with a form, text of
//                                  that form or calls
//
// Requirements of a schema that no grammar enforces are listed; for a strict tool or schema they
// are an error.
//
// Threading:  pure functions.
// Cost:       the schemas' cost: about 1 ms for 1 KB at most, 500 KB take well under a second.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "constrain/grammar.h"
#include "dialect/answer_parser.h"
#include "dialect/format.h"
#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

struct AnswerGrammar {
  constrain::GrammarPtr grammar;        // null: any answer.
  std::vector<std::string> unenforced;  // "tools[0].parameters/properties/a/pattern"
};

std::variant<AnswerGrammar, ApiError> make_answer_grammar(const dialect::Format& format,
                                                          dialect::AnswerStart start,
                                                          const ChatRequest& request);

}  // namespace stemma::server
