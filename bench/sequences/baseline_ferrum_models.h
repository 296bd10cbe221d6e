// ferrum-models, system 3 of the survey: blocks of 16 tokens, named by a chain of hashes. A prompt
// shares them from its front up to the first missing one.
//
// Only whole blocks of prompts are named; answers are not. A prompt that is covered whole gives its
// last block back. A free block without a name is taken first, else the one freed last, which loses
// its name: the opposite of LRU. For full attention; other models reuse nothing.
//
// The original is a paged engine, in which running sequences and cached prompts use the same
// blocks. So its pool is all the memory there is, and the blocks of the running sequence count
// once. Here sharing means loading, so its times say less than its token counts.
#pragma once

#include <unordered_map>
#include <vector>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class FerrumModels final : public BaselinePolicy {
 public:
  explicit FerrumModels(const Setting& setting);
  uint64_t stored_bytes() const override { return stored_bytes_; }
  uint64_t budget_bytes() const override { return setting_.total_bytes(); }

 private:
  static constexpr uint32_t kBlockTokens = 16;

  struct Block {
    uint64_t key = 0;  // 0: no name.
    uint32_t users = 0;
    Blob bytes;
  };

  Start start(const Request& request) override;
  void prompt_done(const Request& request, SequenceId sequence) override;
  void finish(const Request& request, SequenceId sequence) override;
  static std::vector<uint64_t> keys_of(const Tokens& prompt);
  uint32_t allocate();
  void forget(uint32_t number);

  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;  // The one freed last at the back.
  std::unordered_map<uint64_t, uint32_t> by_key_;
  std::vector<uint32_t> table_;  // Of the running request.
  uint64_t stored_bytes_ = 0;
};

}  // namespace stemma::bench::sequences
