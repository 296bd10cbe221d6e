// LlamaEmbedder: vectors of texts, computed by a llama.cpp model in a context of its own.
//
// The vector of a text is made of the model's states after its tokens: their mean, or the last of
// them. It is scaled to length 1. Nothing is kept between texts and nothing is shared with the
// sequences of the cache, so the same tokens always give the same vector.
//
// Threading:  thread-safe; one text at a time.
// Ownership:  the model outlives it.
// Cost:       a forward pass over the text; the context's K and V, and room for one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/lock.h"
#include "stemma/ids.h"
#include "stemma/result.h"

struct llama_adapter_lora;
struct llama_context;
struct llama_model;

namespace stemma::engine {

struct LlamaEmbedderOptions {
  std::string pooling = "on";     // "mean", "last", or "on": as the file says, else the mean.
  uint32_t context_tokens = 512;  // The longest text.
  uint32_t batch_tokens = 512;
  uint32_t threads = 1;
  bool flash_attention = true;
  std::vector<llama_adapter_lora*> adapters = {};
  std::vector<float> scales = {};  // Of the adapters.
};

class LlamaEmbedder {
 public:
  // Returns null on failure, with the reason in `why`.
  static std::unique_ptr<LlamaEmbedder> create(llama_model* model,
                                               const LlamaEmbedderOptions& options,
                                               std::string& why);
  ~LlamaEmbedder();
  LlamaEmbedder(const LlamaEmbedder&) = delete;
  LlamaEmbedder& operator=(const LlamaEmbedder&) = delete;

  uint32_t width() const noexcept { return width_; }
  uint32_t most_tokens() const noexcept { return most_tokens_; }
  const char* pooling() const noexcept { return mean_ ? "mean" : "last"; }

  // Error: invalid_argument (no tokens), out_of_range (too many; the value is how many fit),
  // wrong_state (the forward pass failed).
  Result<std::vector<float>> embed(std::span<const Token> tokens);

 private:
  LlamaEmbedder() = default;
  // Computes one batch and adds its states to `sum`; for the last state, replaces it.
  Result<void> add(std::span<const Token> tokens, uint32_t from, std::vector<double>& sum)
      STEMMA_REQUIRES(mutex_);

  base::WaitMutex mutex_;
  llama_context* context_ STEMMA_GUARDED_BY(mutex_) = nullptr;
  uint32_t width_ = 0;
  uint32_t most_tokens_ = 0;
  uint32_t batch_tokens_ = 0;
  bool mean_ = true;
};

}  // namespace stemma::engine
