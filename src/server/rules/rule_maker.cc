#include "server/rules/rule_maker.h"

#include <algorithm>
#include <utility>

#include "constrain/matcher.h"
#include "server/rules/answer_grammar.h"

namespace stemma::server {
namespace {

using Specials = std::shared_ptr<const std::vector<Token>>;

// All answers of a grammar share its masks. Only the engine's thread uses them.
class GrammarTokenRules final : public TokenRules {
 public:
  GrammarTokenRules(std::shared_ptr<const constrain::TokenTable> table,
                    std::shared_ptr<constrain::TokenMasks> masks, constrain::GrammarPtr grammar,
                    Specials specials)
      : table_(std::move(table)),
        masks_(std::move(masks)),
        specials_(std::move(specials)),
        matcher_(std::move(grammar)) {}

  bool allows(Token token) override {
    const std::string_view bytes = bytes_of(token);
    if (bytes.empty() || !matcher_.allows(bytes)) return false;
    const bool special = specials_ != nullptr && std::ranges::binary_search(*specials_, token);
    return !special || !in_string();
  }
  std::shared_ptr<const constrain::TokenMask> mask() override {
    std::shared_ptr<const constrain::TokenMask> mask = masks_->mask(matcher_);
    if (specials_ == nullptr || !in_string()) return mask;
    constrain::TokenMask without = *mask;
    for (const Token token : *specials_) {
      if (token >= table_->size() || !without.allows(token)) continue;
      without.bits[token >> 6U] &= ~(uint64_t{1} << (token & 63U));
      --without.count;
    }
    return std::make_shared<const constrain::TokenMask>(std::move(without));
  }
  void accept(Token token) override {
    const std::string_view bytes = bytes_of(token);
    if (!bytes.empty() && !matcher_.accept(bytes)) broken_ = true;
  }
  bool may_end() const override { return broken_ || matcher_.may_end(); }
  bool must_end() const override { return broken_ || matcher_.must_end(); }

 private:
  std::string_view bytes_of(Token token) const {
    return token < table_->size() ? table_->bytes(token) : std::string_view();
  }
  // Whether any letter may follow, as in text, but no control character, as in JSON.
  bool in_string() const { return matcher_.allows("~") && !matcher_.allows("\x01"); }

  const std::shared_ptr<const constrain::TokenTable> table_;
  const std::shared_ptr<constrain::TokenMasks> masks_;
  const Specials specials_;
  constrain::Matcher matcher_;
  bool broken_ = false;  // A forbidden token was accepted: the rules no longer apply.
};

class GrammarRules final : public AnswerRules {
 public:
  GrammarRules(std::shared_ptr<const constrain::TokenTable> table, constrain::GrammarPtr grammar,
               Specials specials)
      : table_(std::move(table)),
        grammar_(std::move(grammar)),
        specials_(std::move(specials)),
        masks_(std::make_shared<constrain::TokenMasks>(*table_, grammar_)) {}

  std::unique_ptr<TokenRules> begin() const override {
    return std::make_unique<GrammarTokenRules>(table_, masks_, grammar_, specials_);
  }

 private:
  const std::shared_ptr<const constrain::TokenTable> table_;
  const constrain::GrammarPtr grammar_;
  const Specials specials_;
  const std::shared_ptr<constrain::TokenMasks> masks_;
};

void append_sized(std::string& key, std::string_view text) {
  key += std::to_string(text.size());
  key += ':';
  key += text;
}

// A key of everything that a request's rules are made from.
std::string key_of(const ChatRequest& request, dialect::AnswerStart start) {
  std::string key;
  for (const auto part :
       {static_cast<uint32_t>(start), static_cast<uint32_t>(request.tool_choice.kind),
        static_cast<uint32_t>(request.parallel_calls), static_cast<uint32_t>(request.form.kind),
        static_cast<uint32_t>(request.form.strict)}) {
    key += static_cast<char>('0' + part);
  }
  append_json(key, request.form.schema);
  append_sized(key, request.form.grammar);
  for (const std::string& name : request.tool_choice.names) append_sized(key, name);
  key += '|';
  for (const ToolSpec& tool : request.tools) {
    append_sized(key, tool.name);
    key += tool.strict ? 's' : '-';
    key += tool.custom ? 'c' : '-';
    append_json(key, tool.parameters);
  }
  return key;
}

}  // namespace

std::shared_ptr<const AnswerRules> grammar_rules(
    std::shared_ptr<const constrain::TokenTable> table, constrain::GrammarPtr grammar,
    std::shared_ptr<const std::vector<Token>> specials) {
  return std::make_shared<const GrammarRules>(std::move(table), std::move(grammar),
                                              std::move(specials));
}

std::shared_ptr<const constrain::TokenTable> RuleMaker::table() {
  const base::Lock lock(mutex_);
  if (table_ != nullptr) return table_;
  const std::vector<Token>* const printed = chat_.printed_tokens().get();
  std::vector<std::string> bytes(model_.info().vocabulary);
  for (Token token = 0; token < bytes.size(); ++token) {
    if (model_.ends_generation(token)) continue;
    // In the way the scheduler prints them.
    const bool special = printed != nullptr && std::ranges::binary_search(*printed, token);
    model_.append_text(token, special, bytes[token]);
  }
  table_ = std::make_shared<const constrain::TokenTable>(bytes);
  return table_;
}

std::variant<RuleMaker::Made, ApiError> RuleMaker::make(const ChatRequest& request,
                                                        std::string_view prompt) {
  const bool calls = !request.tools.empty() && request.tool_choice.kind != ToolChoice::Kind::none;
  if (!calls && request.form.kind == AnswerForm::Kind::free) return Made{};
  const dialect::AnswerStart start = dialect::answer_start(chat_.format(), prompt);
  std::string key = key_of(request, start);
  {
    const base::Lock lock(mutex_);
    const auto found = std::ranges::find(kept_, key, &Kept::key);
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return kept_.front().made;
    }
  }
  auto grammar = make_answer_grammar(chat_.format(), start, request);
  if (auto* error = std::get_if<ApiError>(&grammar)) return std::move(*error);
  auto& good = std::get<AnswerGrammar>(grammar);
  Made made{.rules = nullptr, .unenforced = std::move(good.unenforced)};
  if (good.grammar != nullptr) {
    made.rules = grammar_rules(table(), std::move(good.grammar), chat_.printed_tokens());
  }
  const base::Lock lock(mutex_);
  kept_.push_front({std::move(key), made});
  if (kept_.size() > kMostKept) kept_.pop_back();
  return made;
}

}  // namespace stemma::server
