// A model and memory: every policy gets the same.
//
// The models are the "big" one of the measurements behind SequenceCosts (12,300 bytes a token and
// kind of layer, 2.6 ms to compute a token) with fewer bytes, since a run would otherwise move
// gigabytes. Costs are stretched by the same factor, so the virtual clock shows the big model's
// times.
//
// All policies get the same total of live positions and stored bytes: total_bytes(). A policy that
// keeps sequences in the engine has context_tokens there and stored_bytes beside it. A policy that
// keeps copies of everything needs room for one sequence at a time, and may store the rest:
// copies_bytes().
#pragma once

#include <array>
#include <cstdint>

#include "bench/sequences/workloads.h"
#include "support/fake_sequences.h"

namespace stemma::bench::sequences {

enum class Model : uint8_t {
  full,    // Full attention in every layer.
  window,  // Half of the layers see a window.
  hybrid,  // Half of the layers are recurrent: their state is as large as 72 tokens.
};
inline constexpr std::array kModels = {Model::full, Model::window, Model::hybrid};
const char* to_string(Model model);

// How much is stored, as a multiple of what the engine's context holds.
enum class Memory : uint8_t { tight, normal, roomy, unlimited };
inline constexpr std::array kMemories = {Memory::tight, Memory::normal, Memory::roomy,
                                         Memory::unlimited};
const char* to_string(Memory memory);

struct Setting {
  Model model = Model::full;
  uint32_t sequences = 4;
  uint32_t context_tokens = 0;
  uint64_t stored_bytes = 0;
  uint32_t longest_tokens = 0;  // Of the longest request with its answer.

  uint64_t total_bytes() const;
  uint64_t copies_bytes() const;
};

inline constexpr uint32_t kWindowTokens = 1024 / kShrink;
inline constexpr uint32_t kBatchTokens = 512 / kShrink;  // Tokens computed at once.
inline constexpr uint64_t kTokenBytes = 256;             // Of one token in one kind of layer.
// How many bytes of the big model one of ours stands for.
inline constexpr double kByteFactor = 12'300.0 / kTokenBytes;

Setting setting_of(const Workload& workload, Model model, Memory memory);
test::FakeSequences::Options engine_options(const Setting& setting);

}  // namespace stemma::bench::sequences
