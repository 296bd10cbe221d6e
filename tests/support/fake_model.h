// FakeModel is a LanguageModel over FakeSequences: it computes nothing but contents, and what it answers
// follows from all of them. So an answer from a wrong prefix is a wrong answer.
//
// Its vocabulary is the 256 bytes and three special tokens, its answers are printable. After about one
// token in forty it wants to end.
//
// Threading:  as LanguageModel says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language_model.h"
#include "support/fake_sequences.h"

namespace stemma::test {

class FakeModel final : public engine::LanguageModel {
 public:
  static constexpr Token kBos = 256, kStart = 257, kEnd = 258;  // <|bos|> <|im_start|> <|im_end|>
  static constexpr uint32_t kVocabulary = 259;

  explicit FakeModel(const FakeSequences::Options& options, uint32_t batch_tokens = 64);

  // What it says after `prompt` when the likeliest token is always taken: at most `count` tokens, without
  // the one that ends it.
  std::vector<Token> greedy(std::span<const Token> prompt, uint32_t count) const;
  std::string text(std::span<const Token> tokens) const;
  FakeSequences& fake() { return sequences_; }
  // To be changed before it is used.
  engine::ModelInfo& change_info() { return info_; }
  // It knows every template by sight: "role: content<|im_end|>" a message, trimmed, and "assistant:".
  bool knows_templates = false;
  // Its tokenizer takes special tokens for words, whatever it is told.
  bool longest_word = false;
  // Its tokenizer puts a space in front of texts, also of those between special tokens.
  bool puts_spaces = false;

  // While a Hold lives, the next forward pass waits; so do the engine's thread and all who wait for it.
  class Hold {
   public:
    explicit Hold(FakeModel& model);
    ~Hold() { let_go(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Until a pass waits; false: none does within two minutes.
    bool wait();
    void let_go();

   private:
    FakeModel& model_;
  };

  // While a TextHold lives, texts of at least so many bytes wait to be tokenised, and so does whoever asks.
  class TextHold {
   public:
    TextHold(FakeModel& model, size_t bytes);
    ~TextHold() { let_go(); }
    TextHold(const TextHold&) = delete;
    TextHold& operator=(const TextHold&) = delete;
    // Until so many texts wait; false: they do not within two minutes.
    bool wait(uint32_t texts);
    void let_go();

   private:
    FakeModel& model_;
  };
  // Texts that it was given to tokenise, those that wait too.
  mutable std::atomic<uint32_t> texts = 0;

  // How long a forward pass takes, beside computing.
  std::atomic<uint32_t> pass_us = 0;
  // So many of the next forward passes fail, having computed half.
  std::atomic<uint32_t> failing_passes = 0;
  // Forward passes over more sequences than this find no room, whatever the books say; 0 = any number.
  std::atomic<uint32_t> most_sequences = 0;

  const engine::ModelInfo& info() const noexcept override { return info_; }
  SequenceEngine& sequences() noexcept override { return sequences_; }
  Result<void> decode(std::span<const engine::BatchItem> batch) override;
  std::span<const float> logits(uint32_t index) override;
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override;
  Result<std::vector<Token>> tokenize_rest(std::string_view text,
                                           bool parse_special) const override;
  void append_text(Token token, bool special, std::string& text) const override;
  bool ends_generation(Token token) const noexcept override { return token == kEnd; }
  bool is_special(Token token) const noexcept override { return token >= kBos; }
  Result<std::string> apply_own_template(std::string_view chat_template,
                                         std::span<const engine::ChatMessage> messages,
                                         bool add_generation_prompt) const override;

 private:
  std::vector<Token> tokens_of(std::string_view text, bool parse_special, bool space) const;
  static void fill_logits(uint64_t value, std::vector<float>& logits);

  void wait_with(std::string_view text) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool held_ = false;                   // Under mutex_.
  bool pass_waits_ = false;             // Under mutex_.
  size_t held_bytes_ = SIZE_MAX;        // Under mutex_: texts of so many bytes wait.
  mutable uint32_t waiting_texts_ = 0;  // Under mutex_.
  FakeSequences::Options options_;
  FakeSequences sequences_;
  engine::ModelInfo info_;
  std::vector<std::vector<float>> logits_;  // By item; empty if not wanted.
};

}  // namespace stemma::test
