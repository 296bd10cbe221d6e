#include "engine/llama/llama_embedder.h"

#include <llama.h>

#include <algorithm>
#include <cmath>

namespace stemma::engine {
namespace {

std::string metadata(const llama_model* model, const std::string& key) {
  char text[64];
  const int32_t length = llama_model_meta_val_str(model, key.c_str(), text, sizeof text);
  return length < 0 ? "" : std::string(text, std::min<size_t>(length, sizeof text - 1));
}

// What the file says about joining states; "" if it says nothing.
std::string pooling_of(const llama_model* model) {
  const std::string said =
      metadata(model, metadata(model, "general.architecture") + ".pooling_type");
  if (said == std::to_string(LLAMA_POOLING_TYPE_MEAN)) return "mean";
  if (said == std::to_string(LLAMA_POOLING_TYPE_LAST)) return "last";
  const bool none = said.empty() || said == std::to_string(LLAMA_POOLING_TYPE_NONE);
  return none ? "" : said;
}

class Batch {
 public:
  explicit Batch(size_t tokens) : raw_(llama_batch_init(static_cast<int32_t>(tokens), 0, 1)) {}
  ~Batch() { llama_batch_free(raw_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  void add(Token token, uint32_t position) {
    const int32_t at = raw_.n_tokens++;
    raw_.token[at] = static_cast<llama_token>(token);
    raw_.pos[at] = static_cast<llama_pos>(position);
    raw_.n_seq_id[at] = 1;
    raw_.seq_id[at][0] = 0;
    raw_.logits[at] = 1;
  }
  const llama_batch& raw() const { return raw_; }

 private:
  llama_batch raw_;
};

}  // namespace

std::unique_ptr<LlamaEmbedder> LlamaEmbedder::create(llama_model* model,
                                                     const LlamaEmbedderOptions& options,
                                                     std::string& why) {
  std::unique_ptr<LlamaEmbedder> made(new LlamaEmbedder);
  std::string pooling = options.pooling == "on" ? pooling_of(model) : options.pooling;
  if (pooling.empty()) pooling = "mean";
  if (pooling != "mean" && pooling != "last") {
    why = "the file joins states in a way that is not supported (pooling_type " + pooling +
          "); choose mean or last";
    return nullptr;
  }
  made->mean_ = pooling == "mean";
  made->width_ = static_cast<uint32_t>(llama_model_n_embd_out(model));
  made->batch_tokens_ = std::max(1U, std::min(options.batch_tokens, options.context_tokens));

  llama_context_params context = llama_context_default_params();
  context.n_ctx = options.context_tokens;
  context.n_batch = context.n_ubatch = made->batch_tokens_;
  context.n_seq_max = 1;
  context.n_threads = context.n_threads_batch = static_cast<int32_t>(options.threads);
  context.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  context.embeddings = true;
  // States are joined here, so that a text may be longer than a batch.
  context.pooling_type = LLAMA_POOLING_TYPE_NONE;
  context.no_perf = true;
  const base::Lock lock(made->mutex_);  // Nobody else has it yet.
  made->context_ = llama_init_from_model(model, context);
  if (made->context_ == nullptr) {
    why = "no context of " + std::to_string(options.context_tokens) + " tokens for embeddings";
    return nullptr;
  }
  made->most_tokens_ = std::min(options.context_tokens, llama_n_ctx(made->context_));
  auto adapters = options.adapters;
  auto scales = options.scales;
  if (!adapters.empty() && llama_set_adapters_lora(made->context_, adapters.data(), adapters.size(),
                                                   scales.data()) != 0) {
    why = "the adapters do not fit the context for embeddings";
    return nullptr;
  }
  return made;
}

LlamaEmbedder::~LlamaEmbedder() {
  if (context_ != nullptr) llama_free(context_);
}

Result<void> LlamaEmbedder::add(std::span<const Token> tokens, uint32_t from,
                                std::vector<double>& sum) {
  Batch batch(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) batch.add(tokens[i], from + static_cast<uint32_t>(i));
  if (const int32_t code = llama_decode(context_, batch.raw()); code != 0) {
    return Error(Errc::wrong_state, "llama.cpp's forward pass failed", static_cast<uint32_t>(code));
  }
  const size_t first = mean_ ? 0 : tokens.size() - 1;
  for (size_t i = first; i < tokens.size(); ++i) {
    const float* const state = llama_get_embeddings_ith(context_, static_cast<int32_t>(i));
    if (state == nullptr) return Error(Errc::wrong_state, "llama.cpp has no state of a token");
    for (uint32_t at = 0; at < width_; ++at) sum[at] = (mean_ ? sum[at] : 0.0) + state[at];
  }
  return {};
}

Result<std::vector<float>> LlamaEmbedder::embed(std::span<const Token> tokens) {
  if (tokens.empty()) return Error(Errc::invalid_argument, "a text without tokens");
  if (tokens.size() > most_tokens_) {
    return Error(Errc::out_of_range, "the text is too long", most_tokens_);
  }
  const base::Lock lock(mutex_);
  llama_memory_clear(llama_get_memory(context_), true);
  std::vector<double> sum(width_, 0.0);
  for (size_t at = 0; at < tokens.size(); at += batch_tokens_) {
    const size_t count = std::min<size_t>(batch_tokens_, tokens.size() - at);
    STEMMA_TRY_VOID(add(tokens.subspan(at, count), static_cast<uint32_t>(at), sum));
  }
  double squares = 0.0;
  for (const double each : sum) squares += each * each;
  if (!std::isfinite(squares)) return Error(Errc::wrong_state, "the model computed no numbers");
  const double length = std::sqrt(squares);
  std::vector<float> vector;
  vector.reserve(width_);
  for (const double each : sum) {
    vector.push_back(static_cast<float>(length > 0.0 ? each / length : 0.0));
  }
  return vector;
}

}  // namespace stemma::engine
