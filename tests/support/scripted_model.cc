#include "support/scripted_model.h"

#include <algorithm>
#include <utility>

namespace stemma::test {
namespace {

bool is_small(char c) { return c >= 'a' && c <= 'z'; }

}  // namespace

ScriptedModel::ScriptedModel(Options options, Script script)
    : options_(std::move(options)), script_(std::move(script)), sequences_(options_.engine) {
  end_ = kSpecials + 1;
  info_.name = options_.name;
  info_.architecture = "scripted";
  info_.description = "answers what a script says";
  info_.chat_template = options_.chat_template;
  info_.vocabulary = kSpecials + static_cast<uint32_t>(options_.specials.size());
  info_.trained_tokens = options_.engine.context_tokens;
  info_.batch_tokens = options_.batch_tokens;
  info_.bos_text = options_.specials[0];
  info_.eos_text = options_.specials[1];
  info_.adds_bos = true;
  info_.scope.model = "scripted " + std::to_string(options_.engine.model);
}

std::vector<Token> ScriptedModel::tokens_of(std::string_view text, bool parse_special,
                                            bool pairs) const {
  std::vector<Token> tokens;
  for (size_t i = 0; i < text.size();) {
    const auto special = !parse_special
                             ? options_.specials.end()
                             : std::ranges::find_if(options_.specials, [&](const auto& each) {
                                 return text.substr(i).starts_with(each);
                               });
    if (special != options_.specials.end()) {
      tokens.push_back(kSpecials + static_cast<Token>(special - options_.specials.begin()));
      i += special->size();
    } else if (pairs && i + 1 < text.size() && is_small(text[i]) && is_small(text[i + 1])) {
      tokens.push_back(kPairs + static_cast<Token>((text[i] - 'a') * 26 + (text[i + 1] - 'a')));
      i += 2;
    } else {
      tokens.push_back(static_cast<uint8_t>(text[i++]));
    }
  }
  return tokens;
}

std::vector<Token> ScriptedModel::sampled(std::string_view text) const {
  return tokens_of(text, true, false);
}

Result<std::vector<Token>> ScriptedModel::tokenize(std::string_view text, bool add_special,
                                                   bool parse_special) const {
  std::vector<Token> tokens = tokens_of(text, parse_special, true);
  if (add_special) tokens.insert(tokens.begin(), kSpecials);
  return tokens;
}

Result<std::vector<Token>> ScriptedModel::tokenize_rest(std::string_view text,
                                                        bool parse_special) const {
  return tokens_of(text, parse_special, true);
}

void ScriptedModel::append_text(Token token, bool special, std::string& text) const {
  if (token < kPairs) {
    text += static_cast<char>(token);
  } else if (token < kSpecials) {
    text += static_cast<char>('a' + (token - kPairs) / 26);
    text += static_cast<char>('a' + (token - kPairs) % 26);
  } else if (special && token < info_.vocabulary) {
    text += options_.specials[token - kSpecials];
  }
}

std::string ScriptedModel::text(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) append_text(token, true, text);
  return text;
}

Result<std::string> ScriptedModel::apply_own_template(std::string_view,
                                                      std::span<const engine::ChatMessage>,
                                                      bool) const {
  return Error(Errc::unsupported, "it has no templates of its own");
}

Result<void> ScriptedModel::decode(std::span<const engine::BatchItem> batch) {
  if (batch.empty() || batch.size() > info_.batch_tokens) {
    return Error(Errc::invalid_argument, "batch size", static_cast<uint32_t>(batch.size()));
  }
  sequences_.spend_pass();
  logits_.assign(batch.size(), {});
  for (size_t i = 0; i < batch.size(); ++i) {
    const engine::BatchItem& item = batch[i];
    if (item.token >= info_.vocabulary) return Error(Errc::invalid_argument, "no such token");
    const bool first = i == 0 || batch[i - 1].sequence != item.sequence;
    if (first && item.position != sequences_.held(item.sequence).end) {
      return Error(Errc::invalid_argument, "not at the end of its sequence", item.position);
    }
    const uint64_t before = item.position == 0 ? 0 : sequences_.last_value(item.sequence);
    STEMMA_TRY_VOID(sequences_.compute(item.sequence, {&item.token, 1}));
    ++computed_;
    const uint64_t now = sequences_.last_value(item.sequence);
    Node node{.before = before, .token = item.token};
    if (const auto parent = nodes_.find(before); parent != nodes_.end()) {
      const std::vector<Token>* const answer =
          parent->second.answer == kNone ? nullptr : &answers_[parent->second.answer];
      if (answer != nullptr && parent->second.said < answer->size() &&
          (*answer)[parent->second.said] == item.token) {
        node.answer = parent->second.answer;
        node.said = parent->second.said + 1;
      }
    }
    // A sequence that has begun an answer continues that answer.
    const auto known = nodes_.find(now);
    if (known == nodes_.end() || known->second.answer == kNone) nodes_[now] = node;
    if (item.logits) {
      logits_[i].assign(info_.vocabulary, -20.0F);
      for (Token token = ' '; token < 127; ++token) {
        logits_[i][token] = -static_cast<float>((token * 7 + now) % 64) / 16.0F;
      }
      logits_[i][next(now)] = 20.0F;
    }
  }
  return {};
}

std::span<const float> ScriptedModel::logits(uint32_t index) {
  return index < logits_.size() ? std::span<const float>(logits_[index]) : std::span<const float>();
}

std::string ScriptedModel::known_text(uint64_t value) const {
  std::vector<Token> tokens;
  for (auto at = nodes_.find(value); at != nodes_.end(); at = nodes_.find(at->second.before)) {
    tokens.push_back(at->second.token);
    if (at->second.before == 0) break;
  }
  std::ranges::reverse(tokens);
  return text(tokens);
}

Token ScriptedModel::next(uint64_t value) {
  Node& node = nodes_[value];
  if (node.answer == kNone) {
    const std::string prompt = known_text(value);
    node.answer = static_cast<uint32_t>(answers_.size());
    node.said = 0;
    answers_.push_back(sampled(prompt.empty() ? "(lost)" : script_(prompt)));
  }
  const std::vector<Token>& answer = answers_[node.answer];
  return node.said < answer.size() ? answer[node.said] : end_;
}

}  // namespace stemma::test
