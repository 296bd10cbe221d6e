// TextPromptCache: a WholePromptCache for callers that have texts and a tokenizer.
//
// The system text and the prompt are tokenized one after the other and never together, so that the
// tokens of a system text stand in front of every prompt behind it: stored alone (an empty prompt) it is
// found by all of them. The configuration of the model goes into the scope: nothing is shared across two.
// Texts are compared as tokens, in full. A conversation is found by its continuation where the tokenizer
// gives the longer text tokens that begin like those of the shorter one.
//
// Threading:  thread-safe if the tokenizer is. It is called on the caller's thread, with no lock held.
// Ownership:  the caller's cache and tokenizer, which outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/whole_prompt.h"

namespace stemma {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Adds the tokens of `text` to `out`. Must not throw.
  virtual Result<void> encode(std::string_view text, std::vector<Token>& out) = 0;
  // Adds the text of `tokens` to `out`. Must not throw.
  virtual Result<void> decode(std::span<const Token> tokens, std::string& out) = 0;
};

struct TextPrompt {
  std::string_view prompt = {};
  std::string_view system = {};               // Empty: none.
  std::string_view model_configuration = {};  // Required: whatever changes what the model computes.
};

struct EncodedPrompt {
  Scope scope;
  std::vector<Token> tokens;
  uint32_t system_tokens = 0;  // Of them, those of the system text: worth an entry of its own.
};

class TextPromptCache {
 public:
  TextPromptCache(WholePromptCache& cache, Tokenizer& tokenizer) noexcept
      : cache_(cache), tokenizer_(tokenizer) {}

  // Error: invalid_argument (no model configuration), out_of_memory, what the tokenizer says.
  Result<EncodedPrompt> encode(const TextPrompt& prompt) const noexcept;
  // As WholePromptCache::find(). Error: as encode().
  Result<std::optional<WholePromptCache::Lease>> find(const TextPrompt& prompt) const noexcept;
  // As WholePromptCache::store(). Error: also as encode().
  Result<void> store(const TextPrompt& prompt, std::span<const uint8_t> bytes,
                     std::span<const float> logits = {}) const noexcept;
  // The text that a lease has the state of. Error: out_of_memory, what the tokenizer says.
  Result<std::string> text_of(const WholePromptCache::Lease& lease) const noexcept;

 private:
  WholePromptCache& cache_;
  Tokenizer& tokenizer_;
};

}  // namespace stemma
