// Random models of every kind of attention, and too little memory for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/paged/engine.h"
#include "engine/paged/random.h"

namespace stemma::oracle {

template <class T, size_t N>
T one_of(paged::Random& random, const T (&values)[N]) {
  return values[random.below(N)];
}

inline constexpr int kFull = 0, kWindow = 1, kSinks = 2, kRecurrent = 3, kFullWindow = 4,
                     kFullRecurrent = 5, kHybrid = 6, kModelKinds = 7;
inline constexpr const char* kKindNames[kModelKinds] = {
    "full", "window", "sinks", "recurrent", "full+window", "full+recurrent", "hybrid"};

// A model's shape, and as many weights of that shape as there are adapters.
struct Models {
  Models(paged::Random& random, int kind);
  std::vector<std::unique_ptr<paged::Model>> models;
  std::vector<paged::Adapter> adapters;
  std::vector<const paged::Model*> pointers() const;
};
paged::ModelConfig random_model(paged::Random& random, int kind);
std::vector<paged::GroupMemory> random_memory(paged::Random& random,
                                              const paged::ModelConfig& config,
                                              uint32_t longest_tokens);

}  // namespace stemma::oracle
