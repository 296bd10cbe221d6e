// LlamaModel: a GGUF file run by llama.cpp, as a LanguageModel.
//
// Its scope has everything that must be equal for two states to be compatible: the content of the
// file and of its adapters, the types of K and V, flash attention, the layout of the context, and
// llama.cpp's release.
//
// Threading:  as LanguageModel says.
// Ownership:  owns the model and its context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "engine/llama/llama_device.h"
#include "engine/llama/llama_embedder.h"
#include "engine/llama/llama_sequences.h"

struct llama_adapter_lora;
struct llama_model;
struct llama_vocab;
struct llama_context_params;

namespace stemma::engine {

struct LlamaAdapter {
  std::string path;
  float scale = 1.0F;
};

struct LlamaOptions {
  std::string path;
  std::string model_id;   // Used instead of the file's SHA-256.
  std::string id_memory;  // Where the SHA-256 is remembered (file_id.h); empty = nowhere.
  std::vector<LlamaAdapter> adapters;
  uint32_t sequences = 4;
  uint32_t context_tokens =
      0;  // For all sequences together if unified, else for each; 0 = the model's.
  uint32_t batch_tokens = 512;  // Raised to at least one token for each sequence.
  uint32_t threads = 0;         // 0 = half the cores; its threads spin while they wait.
  std::string k_type = "f16";   // f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1.
  std::string v_type = "f16";
  bool flash_attention = true;
  bool unified = true;
  bool shares = true;  // false: every sequence reuses only what it holds itself, as slots do.
  // How many positions one call saves or loads; 0 = many if a GPU has them, else one segment.
  uint32_t range_tokens = 0;
  // -1 = all, if there is a usable GPU. A value above 0 is refused if there is none.
  int32_t gpu_layers = -1;
  // How embed() joins a text's states: "mean", "last", "on" (as the file says, else the mean); or
  // "off": embed() is not supported, and takes no memory.
  std::string embeddings = "off";
  // Refuses a context whose K and V need more; 0 = what the system has left, GPUs included.
  uint64_t memory_bytes = 0;
  // Called with what is being done and how far it is, 0 to 1. Returning false stops.
  std::function<bool(const char*, double)> progress;
};

class LlamaModel final : public LanguageModel {
 public:
  // Returns null on failure, with the reason in `why`: one line for the person who started it.
  static std::unique_ptr<LlamaModel> load(const LlamaOptions& options, std::string& why);
  ~LlamaModel() override;

  MemoryKind memory_kind() const noexcept { return sequences_->kind(); }
  llama_context* context() const noexcept { return context_; }

  const ModelInfo& info() const noexcept override { return info_; }
  LlamaSequences& sequences() noexcept override { return *sequences_; }
  Result<void> decode(std::span<const BatchItem> batch) override;
  std::span<const float> logits(uint32_t index) override;
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override;
  Result<std::vector<Token>> tokenize_rest(std::string_view text,
                                           bool parse_special) const override;
  void append_text(Token token, bool special, std::string& text) const override;
  bool ends_generation(Token token) const noexcept override;
  bool is_special(Token token) const noexcept override;
  Result<std::vector<float>> embed(std::span<const Token> tokens) override;
  Result<std::string> apply_own_template(std::string_view chat_template,
                                         std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const override;

 private:
  LlamaModel() = default;
  std::string start(const LlamaOptions& options);
  // Returns "" or why the layers that were asked for cannot be on a GPU.
  std::string choose_gpus(const LlamaOptions& options, const GpuSearch& search);
  // Writes the SHA-256 of a file to `id`. Returns "" or why it cannot be read.
  static std::string identify(const LlamaOptions& options, const std::string& path,
                              std::string& id);
  // Return "" or why the weights, or the adapters, cannot be used.
  std::string load_weights(const LlamaOptions& options, const GpuSearch& search);
  struct Adapters {
    std::vector<llama_adapter_lora*> adapters;
    std::vector<float> scales;
  };
  std::string load_adapters(const LlamaOptions& options, Adapters& found);
  // Fills in what info_ says about a model that is loaded.
  void fill_info(const LlamaOptions& options);
  // Returns "" or why no context could be made.
  std::string make_context(const LlamaOptions& options);
  // Returns "" or why the context does not fit into memory.
  std::string check_memory(const LlamaOptions& options, const llama_context_params& wanted) const;
  // Returns "" or why there can be no embeddings.
  std::string make_embedder(const LlamaOptions& options, const Adapters& adapters);
  uint32_t best_range() const noexcept;
  void find_sign();
  void find_mistyped();

  ModelInfo info_;
  ::llama_model* model_ = nullptr;
  const ::llama_vocab* vocabulary_ = nullptr;
  llama_context* context_ = nullptr;
  std::unique_ptr<LlamaSequences> sequences_;
  std::unique_ptr<LlamaEmbedder> embedder_;
  struct Batch;
  std::unique_ptr<Batch> batch_;
  std::vector<Token> sign_;            // The tokens of kSign, if a space is put in front of it.
  std::vector<Token> mistyped_;        // Special tokens that the file calls words; ascending.
  std::vector<uint8_t> wants_logits_;  // By item of the last batch.
};

}  // namespace stemma::engine
