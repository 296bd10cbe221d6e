// Makes small language models with random weights, as GGUF files that llama.cpp loads. Tests,
// benchmarks and demos can run on them without a download.
//
// A model has learned nothing, but it behaves well. Its output depends on the whole context and is
// mostly made of pronounceable words. Its best token is seldom close to its second best (5e-3 in
// less than one of 2000 steps), so greedy answers can be compared between ways of computing them.
// It ends with <|im_end|> now and then: after 200 tokens (recurrent) to 4000 (window) on average,
// so callers set a limit of their own. llama.cpp's flash attention adds in half precision: turn it
// off if answers must be equal however a prompt was cut. The vocabulary is bytes
// (byte_vocabulary.h). The same shape gives the same file, byte by byte, everywhere. Use one file
// per model: llama.cpp maps files into memory, so writing over one changes a loaded model.
// Threading: pure functions, and a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/gguf/gguf_writer.h"
#include "stemma/result.h"

namespace stemma::gguf {

// What the layers remember; the first word of each comment is llama.cpp's name for such a model.
enum class Architecture : uint8_t {
  llama,      // llama: all positions, in every layer.
  window,     // gemma3: the last `window` positions in layers 0, 2, 4 ..., all in the others.
  recurrent,  // mamba: a state of fixed size in every layer.
  hybrid,     // jamba: a state in layers 0, 2, 4 ..., all positions in the others.
};

const char* to_string(Architecture architecture) noexcept;

struct ModelShape {
  Architecture architecture = Architecture::llama;
  uint32_t layers = 4;
  uint32_t dim = 256;
  uint32_t heads = 4;  // Recurrent models ignore `heads` and `kv_heads`.
  uint32_t kv_heads = 2;
  uint32_t ff = 0;                    // Width of the feed-forward part; 0 for twice dim.
  uint32_t context = 8192;            // The trained context that the file states.
  uint32_t window = 256;              // Only window models have one.
  uint64_t seed = 1;                  // Other weights.
  TensorType type = TensorType::f32;  // Of matrices; small tensors stay f32.
};

struct ModelSize {
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  uint64_t kv_bytes_per_token = 0;      // Of an f16 cache, in layers that remember all positions.
  uint64_t window_bytes_per_token = 0;  // The same in layers with a window.
  uint64_t state_bytes = 0;             // Of one sequence, in recurrent layers (f32).
};

// Error: invalid_argument, with the offending number.
Result<void> check_shape(const ModelShape& shape);
Result<ModelSize> size_of(const ModelShape& shape);

// Called now and then with the bytes written so far and in total. May be empty.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// Error: as check_shape and GgufWriter.
Result<ModelSize> write_model(const ModelShape& shape, const std::string& path,
                              OnExisting on_existing = OnExisting::refuse,
                              const Progress& progress = {});

}  // namespace stemma::gguf
