// A LanguageModel that forwards every call and times saves and loads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "engine/language_model.h"

namespace stemma::bench::serve {

class TimedModel final : public engine::LanguageModel, private SequenceEngine {
 public:
  struct Moves {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    uint64_t ns = 0;
  };

  explicit TimedModel(engine::LanguageModel& model) : model_(model), inner_(model.sequences()) {}
  // Read only while no call is running.
  Moves saves() const { return saves_; }
  Moves loads() const { return loads_; }

  const engine::ModelInfo& info() const noexcept override { return model_.info(); }
  SequenceEngine& sequences() noexcept override { return *this; }
  Result<void> decode(std::span<const engine::BatchItem> batch) override {
    return model_.decode(batch);
  }
  std::span<const float> logits(uint32_t index) override { return model_.logits(index); }
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override {
    return model_.tokenize(text, add_special, parse_special);
  }
  Result<std::vector<Token>> tokenize_rest(std::string_view text,
                                           bool parse_special) const override {
    return model_.tokenize_rest(text, parse_special);
  }
  void append_text(Token token, bool special, std::string& text) const override {
    model_.append_text(token, special, text);
  }
  bool ends_generation(Token token) const noexcept override {
    return model_.ends_generation(token);
  }
  bool is_special(Token token) const noexcept override { return model_.is_special(token); }
  Result<std::string> apply_own_template(std::string_view chat_template,
                                         std::span<const engine::ChatMessage> messages,
                                         bool add_generation_prompt) const override {
    return model_.apply_own_template(chat_template, messages, add_generation_prompt);
  }

 private:
  class Taking {
   public:
    Taking(Moves& moves, uint64_t bytes) : moves_(moves), begin_(std::chrono::steady_clock::now()) {
      ++moves.calls;
      moves.bytes += bytes;
    }
    ~Taking() {
      moves_.ns += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                             std::chrono::steady_clock::now() - begin_)
                                             .count());
    }

   private:
    Moves& moves_;
    std::chrono::steady_clock::time_point begin_;
  };

  EngineTraits traits() const override { return inner_.traits(); }
  Held held(SequenceId sequence) override { return inner_.held(sequence); }
  Result<void> clear(SequenceId sequence) override { return inner_.clear(sequence); }
  Result<void> trim(SequenceId sequence, uint32_t n) override { return inner_.trim(sequence, n); }
  Result<void> copy(SequenceId from, SequenceId to, Range range) override {
    return inner_.copy(from, to, range);
  }
  Result<uint64_t> size(SequenceId sequence, Part part, Range range) override {
    return inner_.size(sequence, part, range);
  }
  Result<uint64_t> save(SequenceId sequence, Part part, Range range,
                        std::span<uint8_t> out) override {
    const Taking taking(saves_, 0);
    Result<uint64_t> written = inner_.save(sequence, part, range, out);
    if (written) saves_.bytes += *written;
    return written;
  }
  Result<void> load(SequenceId sequence, Part part, Range saved, Range wanted,
                    std::span<const uint8_t> bytes) override {
    const Taking taking(loads_, bytes.size());
    return inner_.load(sequence, part, saved, wanted, bytes);
  }
  Result<void> shift(SequenceId sequence, uint32_t keep, uint32_t discard) override {
    return inner_.shift(sequence, keep, discard);
  }

  engine::LanguageModel& model_;
  SequenceEngine& inner_;
  Moves saves_;
  Moves loads_;
};

}  // namespace stemma::bench::serve
