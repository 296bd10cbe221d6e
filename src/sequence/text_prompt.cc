#include "stemma/text_prompt.h"

#include <new>
#include <utility>

namespace stemma {

Result<EncodedPrompt> TextPromptCache::encode(const TextPrompt& prompt) const noexcept try {
  STEMMA_TRY(const Scope scope, Scope::make({.model = std::string(prompt.model_configuration)}));
  EncodedPrompt encoded{scope, {}, 0};
  if (!prompt.system.empty()) {
    STEMMA_TRY_VOID(tokenizer_.encode(prompt.system, encoded.tokens));
  }
  encoded.system_tokens = static_cast<uint32_t>(encoded.tokens.size());
  if (!prompt.prompt.empty()) {
    STEMMA_TRY_VOID(tokenizer_.encode(prompt.prompt, encoded.tokens));
  }
  return encoded;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for the tokens of a text");
}

Result<std::optional<WholePromptCache::Lease>> TextPromptCache::find(
    const TextPrompt& prompt) const noexcept {
  STEMMA_TRY(const EncodedPrompt encoded, encode(prompt));
  return cache_.find(encoded.scope, encoded.tokens);
}

Result<void> TextPromptCache::store(const TextPrompt& prompt, std::span<const uint8_t> bytes,
                                    std::span<const float> logits) const noexcept {
  STEMMA_TRY(const EncodedPrompt encoded, encode(prompt));
  return cache_.store(encoded.scope, encoded.tokens, bytes, logits);
}

Result<std::string> TextPromptCache::text_of(const WholePromptCache::Lease& lease) const noexcept
    try {
  std::string text;
  STEMMA_TRY_VOID(tokenizer_.decode(lease.key(), text));
  return text;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a text");
}

}  // namespace stemma
