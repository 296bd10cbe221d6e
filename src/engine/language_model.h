// LanguageModel: what a server needs from an engine besides its sequences: conversion of text to
// tokens and back, and forward passes over several sequences at a time.
//
// A SequenceCache reaches the KV memory through sequences() (stemma/sequence_engine.h). decode()
// appends to those sequences. If it fails it changes nothing, as far as the engine can tell.
//
// Threading:  decode, logits and sequences() one thread at a time, the engine's; all else any
//             thread.
// Ownership:  the model owns the spans; logits are valid until the next decode.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "stemma/sequence_engine.h"

namespace stemma::engine {

// One token of a forward pass, at the end of what its sequence holds. Several tokens of one
// sequence follow each other in the batch.
struct BatchItem {
  Token token = 0;
  uint32_t position = 0;
  SequenceId sequence{};
  bool logits = false;  // Whether to compute the logits after this token.
};

// A chat message as the engine's own templates take it.
struct ChatMessage {
  std::string role;
  std::string content;
};

// A GPU that computes layers of a model.
struct ComputeDevice {
  std::string name;         // The engine's: "CUDA0".
  std::string description;  // For people: "NVIDIA H200".
  uint64_t free_bytes = 0;  // When the model was ready.
  uint64_t total_bytes = 0;
};

// Which devices compute a model.
struct Placement {
  std::vector<ComputeDevice> gpus;  // Empty: the CPU computes all of it.
  uint32_t gpu_layers = 0;          // How many layers the GPUs compute.
  uint32_t layers = 0;              // How many there are; the output counts as one.
  std::string why_cpu;              // Why no GPU computes anything; empty if one does.
};

struct ModelInfo {
  std::string name;           // The file's name, without folder and .gguf.
  std::string architecture;   // "llama", "gemma2".
  std::string description;    // For people: size, type.
  std::string chat_template;  // As the file has it; may be empty.
  uint32_t vocabulary = 0;
  uint32_t trained_tokens = 0;  // The context that it was trained with.
  uint32_t batch_tokens = 512;  // The most that decode() takes at once.
  // decode() of a batch that asks for no logits may return before the batch is computed, as on a
  // GPU. Its time then shows in a later decode().
  bool passes_overlap = false;
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  std::string bos_text;  // Templates call this bos_token; empty if there is none.
  std::string eos_text;
  bool adds_bos = false;          // Whether tokenize() with `add_special` puts a BOS in front.
  uint32_t embedding_width = 0;   // Of the vectors of embed(); 0: it makes none.
  uint32_t embedding_tokens = 0;  // The longest text of embed().
  Placement placement;
  // The parts of a scope that the model and its context decide. Callers add salts.
  ScopeSpec scope;
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const ModelInfo& info() const noexcept = 0;
  virtual SequenceEngine& sequences() noexcept = 0;

  // Error: out_of_blocks (no room in the context; nothing changed), invalid_argument (an impossible
  // token, position or sequence; nothing changed). After any other error, ask the batch's sequences
  // what they hold.
  virtual Result<void> decode(std::span<const BatchItem> batch) = 0;
  // The `vocabulary` logits after item `index` of the last batch. Empty unless the item asked for
  // them.
  virtual std::span<const float> logits(uint32_t index) = 0;

  // `add_special`: adds the BOS and whatever else the model wants around a text. `parse_special`:
  // the text of a special token becomes that token; otherwise it stays text.
  // Error: out_of_memory, invalid_argument (text that the vocabulary cannot express).
  virtual Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const = 0;
  // Tokenizes the continuation of a text: tokenizers that add a space in front do not add it here.
  virtual Result<std::vector<Token>> tokenize_rest(std::string_view text,
                                                   bool parse_special) const {
    return tokenize(text, false, parse_special);
  }
  // Appends the token's bytes, which may be part of a character. Special ones have text only if
  // asked.
  virtual void append_text(Token token, bool special, std::string& text) const = 0;
  // Whether the model ends its answer with this token.
  virtual bool ends_generation(Token token) const noexcept = 0;
  // Whether only the model's templates may write this token: a user's text never becomes it
  // (server/chat/special_texts.h).
  virtual bool is_special(Token token) const noexcept = 0;

  // The vector of a text, of length 1. It is computed apart from sequences(), on any thread, one
  // text at a time. Error: unsupported (info().embedding_width is 0), invalid_argument (no tokens),
  // out_of_range (too many; the value is how many fit), wrong_state (the forward pass failed).
  virtual Result<std::vector<float>> embed(std::span<const Token> /*tokens*/) {
    return Error(Errc::unsupported, "this model makes no embeddings");
  }

  // Writes the conversation with the engine's own list of templates. Error: unsupported (the list
  // has no such template).
  virtual Result<std::string> apply_own_template(std::string_view chat_template,
                                                 std::span<const ChatMessage> messages,
                                                 bool add_generation_prompt) const = 0;
};

}  // namespace stemma::engine
