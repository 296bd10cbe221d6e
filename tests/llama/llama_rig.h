// Small models run by llama.cpp, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/gguf/make_model.h"
#include "engine/llama/llama_model.h"
#include "stemma/ids.h"

namespace stemma::test {

using engine::BatchItem;
using engine::LlamaModel;
using engine::LlamaOptions;
using gguf::Architecture;

inline constexpr Architecture kArchitectures[] = {Architecture::llama, Architecture::window,
                                                  Architecture::recurrent, Architecture::hybrid};

// The file of such a model, by default with 4 layers of 64 and a window of 16. Written once per
// process and removed with it.
std::string model_file(Architecture architecture, uint64_t seed = 1, uint32_t window = 16,
                       uint32_t dim = 64);

// One of those models, loaded. Stops the process if that fails: tests can do nothing without.
std::unique_ptr<LlamaModel> load_model(LlamaOptions options);
LlamaOptions options_for(Architecture architecture);

// Appends words behind what the sequence holds, in passes of at most `step`; the logits after the
// last.
Result<std::vector<float>> compute(LlamaModel& model, SequenceId sequence,
                                   std::span<const Token> words, uint32_t step = 512);

// Largest difference, in units of how far apart the logits are from their mean.
double difference(std::span<const float> a, std::span<const float> b);

// Words of the model's vocabulary for any tokens.
std::vector<Token> in_vocabulary(std::span<const Token> words);

}  // namespace stemma::test
