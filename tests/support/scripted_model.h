// ScriptedModel is a LanguageModel that answers what a script says, over FakeSequences: the
// template, the parser, the cache and the tokens are real.
//
// It identifies the words of a sequence by the sequence's contents, so a wrong reuse shows as a
// wrong answer: behind contents that it has never seen it answers "(lost)". After a restart it
// knows only words computed since; a script that looks only at the last message still works.
//
// Its vocabulary is the 256 bytes, the pairs of small letters, and special tokens. Its tokenizer
// uses pairs wherever it can, and its answers never do: so an answer that is rendered and tokenised
// again always has other tokens than it was sampled as.
//
// Threading:  as for LanguageModel; the script is called on the engine's thread.
// Cost:       16 to 40 bytes for each token ever computed: it remembers what led to what.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/language_model.h"
#include "support/fake_sequences.h"

namespace stemma::test {

class ScriptedModel final : public engine::LanguageModel {
 public:
  // Returns the answer to a prompt, with special tokens as their texts. The prompt is given as
  // text, as far as it is known.
  using Script = std::function<std::string(std::string_view prompt)>;
  struct Options {
    FakeSequences::Options engine;
    uint32_t batch_tokens = 512;
    std::string chat_template;
    // The first is the BOS, the second ends an answer.
    std::vector<std::string> specials = {"<|bos|>",      "<|im_end|>",      "<|im_start|>",
                                         "<think>",      "</think>",        "<tool_call>",
                                         "</tool_call>", "<tool_response>", "</tool_response>"};
    std::string name = "scripted";
  };

  ScriptedModel(Options options, Script script);

  std::vector<Token> sampled(std::string_view text) const;  // As it says it.
  std::string text(std::span<const Token> tokens) const;
  FakeSequences& fake() { return sequences_; }
  // Tokens computed so far.
  uint64_t computed() const noexcept { return computed_; }

  const engine::ModelInfo& info() const noexcept override { return info_; }
  SequenceEngine& sequences() noexcept override { return sequences_; }
  Result<void> decode(std::span<const engine::BatchItem> batch) override;
  std::span<const float> logits(uint32_t index) override;
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override;
  Result<std::vector<Token>> tokenize_rest(std::string_view text,
                                           bool parse_special) const override;
  void append_text(Token token, bool special, std::string& text) const override;
  bool ends_generation(Token token) const noexcept override { return token == end_; }
  bool is_special(Token token) const noexcept override { return token >= kSpecials; }
  Result<std::string> apply_own_template(std::string_view chat_template,
                                         std::span<const engine::ChatMessage> messages,
                                         bool add_generation_prompt) const override;

 private:
  static constexpr Token kPairs = 256, kSpecials = 256 + 26 * 26;
  // What a sequence held when a token had been computed, by FakeSequences::last_value().
  struct Node {
    uint64_t before = 0;  // 0: the beginning, or not known.
    Token token = 0;
    uint32_t answer = kNone;  // If it is part of an answer: which answer,
    uint32_t said = 0;        // and how many of its tokens came so far.
  };
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;

  std::vector<Token> tokens_of(std::string_view text, bool parse_special, bool pairs) const;
  std::string known_text(uint64_t value) const;
  Token next(uint64_t value);

  const Options options_;
  const Script script_;
  FakeSequences sequences_;
  engine::ModelInfo info_;
  Token end_ = 0;
  std::unordered_map<uint64_t, Node> nodes_;
  std::vector<std::vector<Token>> answers_;
  std::vector<std::vector<float>> logits_;
  std::atomic<uint64_t> computed_ = 0;
};

}  // namespace stemma::test
