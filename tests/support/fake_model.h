// FakeModel is a LanguageModel over FakeSequences: it only computes contents, and its answer
// depends on all of them. So a wrong prefix gives a wrong answer.
//
// Its vocabulary is the 256 bytes and three special tokens, and its answers are printable. It ends
// after about one token in forty.
//
// Threading:  as for LanguageModel.
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

  // Its answer to `prompt` by greedy sampling: at most `count` tokens, without the end token.
  std::vector<Token> greedy(std::span<const Token> prompt, uint32_t count) const;
  std::string text(std::span<const Token> tokens) const;
  FakeSequences& fake() { return sequences_; }
  // Change these before the first use.
  engine::ModelInfo& change_info() { return info_; }
  // If set, it renders every template as one trimmed "role: content<|im_end|>" a message, then
  // "assistant:".
  bool knows_templates = false;
  // Its tokenizer always treats special tokens as words.
  bool longest_word = false;
  // Its tokenizer puts a space before texts, also before those between special tokens.
  bool puts_spaces = false;

  // While a Hold lives, the next forward pass waits, and with it the engine's thread and its
  // waiters.
  class Hold {
   public:
    explicit Hold(FakeModel& model);
    ~Hold() { let_go(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Waits until a pass waits; returns false after two minutes.
    bool wait();
    void let_go();

   private:
    FakeModel& model_;
  };

  // While a TextHold lives, tokenising a text of at least `bytes` bytes blocks the caller.
  class TextHold {
   public:
    TextHold(FakeModel& model, size_t bytes);
    ~TextHold() { let_go(); }
    TextHold(const TextHold&) = delete;
    TextHold& operator=(const TextHold&) = delete;
    // Waits until `texts` texts wait; returns false after two minutes.
    bool wait(uint32_t texts);
    void let_go();

   private:
    FakeModel& model_;
  };
  // The number of texts given to the tokenizer, including those that wait.
  mutable std::atomic<uint32_t> texts = 0;

  // The extra duration of a forward pass.
  std::atomic<uint32_t> pass_us = 0;
  // This many of the next forward passes fail after computing half.
  std::atomic<uint32_t> failing_passes = 0;
  // Forward passes over more sequences fail for lack of room, even if there is room; 0 = no limit.
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
  // If info().embedding_width is set: how often the text has tokens of each residue, length 1.
  Result<std::vector<float>> embed(std::span<const Token> tokens) override;
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
  size_t held_bytes_ = SIZE_MAX;        // Under mutex_: texts of this many bytes or more wait.
  mutable uint32_t waiting_texts_ = 0;  // Under mutex_.
  FakeSequences::Options options_;
  FakeSequences sequences_;
  engine::ModelInfo info_;
  std::vector<std::vector<float>> logits_;  // By item; empty if not wanted.
};

}  // namespace stemma::test
