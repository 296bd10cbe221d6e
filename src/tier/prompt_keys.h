// PromptKeys: the content keys of one prompt's whole blocks, on every grid of the layer groups.
//
// Threading:  one thread at a time.
// Ownership:  borrows the prompt.
// Cost:       each grid is hashed once, about 85 ns a block of 16 words with SHA instructions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "key/words.h"
#include "stemma/key.h"
#include "stemma/prompt.h"
#include "stemma/result.h"
#include "stemma/scope.h"

namespace stemma::tier {

class PromptKeys {
 public:
  // Error: that of key::find_media_spans().
  static Result<PromptKeys> of(const Scope& scope, const Prompt& prompt);

  // The keys of at least the prompt's first `blocks` blocks of this size. Valid until a call asks
  // for more. Requires: the blocks are in the prompt.
  std::span<const ContentKey> chain(uint32_t block_tokens, uint32_t blocks);
  std::span<const key::MediaSpan> units() const noexcept { return units_; }

 private:
  explicit PromptKeys(const Scope& scope, const Prompt& prompt) : scope_(scope), prompt_(prompt) {}

  Scope scope_;
  Prompt prompt_;
  std::vector<key::MediaSpan> units_;
  std::map<uint32_t, std::vector<ContentKey>> chains_;  // By block_tokens.
};

}  // namespace stemma::tier
