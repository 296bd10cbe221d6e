// TextPromptCache: a WholePromptCache for callers that have texts and a tokenizer.
//
// The system text and the prompt are tokenized separately, so every prompt that follows the same
// system text begins with the same tokens. A system text that is stored alone (with an empty
// prompt) is therefore found for all of them. The model configuration is part of the scope: two
// configurations share nothing. Texts are compared as tokens, in full. The continuation of a
// conversation finds the stored one if the tokens of the longer text begin with those of the
// shorter one.
//
// Threading:  thread-safe if the tokenizer is. The tokenizer is called on the caller's thread, with
//             no lock held.
// Ownership:  the caller owns the cache and the tokenizer, which must outlive this object.
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
  std::string_view model_configuration = {};  // Required: everything that changes the results.
};

struct EncodedPrompt {
  Scope scope;
  std::vector<Token> tokens;
  // The number of leading tokens that are the system text. They are worth their own entry.
  uint32_t system_tokens = 0;
};

class TextPromptCache {
 public:
  TextPromptCache(WholePromptCache& cache, Tokenizer& tokenizer) noexcept
      : cache_(cache), tokenizer_(tokenizer) {}

  // Error: invalid_argument (no model configuration), out_of_memory, any tokenizer error.
  Result<EncodedPrompt> encode(const TextPrompt& prompt) const noexcept;
  // Like WholePromptCache::find(). Error: as encode().
  Result<std::optional<WholePromptCache::Lease>> find(const TextPrompt& prompt) const noexcept;
  // Like WholePromptCache::store(). Error: also as encode().
  Result<void> store(const TextPrompt& prompt, std::span<const uint8_t> bytes,
                     std::span<const float> logits = {}) const noexcept;
  // The text of a lease's prompt. Error: out_of_memory, any tokenizer error.
  Result<std::string> text_of(const WholePromptCache::Lease& lease) const noexcept;

 private:
  WholePromptCache& cache_;
  Tokenizer& tokenizer_;
};

}  // namespace stemma
