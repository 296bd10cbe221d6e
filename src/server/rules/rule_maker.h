// RuleMaker: makes the AnswerRules of a request, which the scheduler follows.
//
// Agents send the same tools again and again. So RuleMaker keeps the grammar made from a request's
// tools and form, with the token masks that were needed. A request with all the same inputs finds
// it again.
//
// Threading:  thread-safe.
// Ownership:  model and chat outlive it. Rules may outlive it: they hold what they need.
// Cost:       the first use makes a table of all tokens: about 0.1 s for 150,000. Then each use
//             makes a grammar (answer_grammar.h) or finds a kept one in O(the request's tools). At
//             most kMostKept grammars are kept.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/lock.h"
#include "constrain/token_table.h"
#include "engine/language_model.h"
#include "server/api/error.h"
#include "server/api/request.h"
#include "server/chat/chat.h"
#include "server/schedule/answer_rules.h"

namespace stemma::server {

class RuleMaker {
 public:
  static constexpr size_t kMostKept = 16;

  RuleMaker(const engine::LanguageModel& model, const Chat& chat) : model_(model), chat_(chat) {}

  struct Made {
    std::shared_ptr<const AnswerRules> rules;  // null: the answer may be anything.
    std::vector<std::string> unenforced;       // Requirements that are not enforced.
  };
  // `prompt` is the text that the answer continues.
  std::variant<Made, ApiError> make(const ChatRequest& request, std::string_view prompt);

 private:
  struct Kept {
    std::string key;
    Made made;
  };
  std::shared_ptr<const constrain::TokenTable> table();

  const engine::LanguageModel& model_;
  const Chat& chat_;
  base::WaitMutex mutex_;
  std::shared_ptr<const constrain::TokenTable> table_ STEMMA_GUARDED_BY(mutex_);
  std::list<Kept> kept_ STEMMA_GUARDED_BY(mutex_);  // Most recently used first.
};

// Makes rules from a grammar over the bytes of tokens. `specials`, ascending, are tokens that stand
// for markers: they are refused inside JSON strings, where their bytes would be text. null: there
// are none.
std::shared_ptr<const AnswerRules> grammar_rules(
    std::shared_ptr<const constrain::TokenTable> table, constrain::GrammarPtr grammar,
    std::shared_ptr<const std::vector<Token>> specials = nullptr);

}  // namespace stemma::server
