#include "tier/prompt_keys.h"

#include "key/content_key.h"

namespace stemma::tier {

Result<PromptKeys> PromptKeys::of(const Scope& scope, const Prompt& prompt) {
  PromptKeys keys(scope, prompt);
  if (!prompt.media.empty()) STEMMA_TRY_VOID(key::find_media_spans(prompt, keys.units_));
  return keys;
}

std::span<const ContentKey> PromptKeys::chain(uint32_t block_tokens, uint32_t blocks) {
  std::vector<ContentKey>& keys = chains_[block_tokens];
  const auto known = static_cast<uint32_t>(keys.size());
  if (known >= blocks) return keys;
  keys.resize(blocks);
  const ContentKey parent = known == 0 ? key::root_key(scope_) : keys[known - 1];
  key::chain_keys(parent, prompt_.tokens, units_, known * block_tokens, block_tokens,
                  std::span(keys).subspan(known));
  return keys;
}

}  // namespace stemma::tier
