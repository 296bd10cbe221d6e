// The demo's scenes: requests that share prefixes, each run twice through the reference engine,
// once with the cache and once with the cache switched off.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/paged/engine.h"

namespace stemma::cli {

// A conversation: every turn's prompt is the whole conversation so far plus something new.
struct Conversation {
  std::vector<paged::Text> turns;
  uint32_t new_tokens = 12;
  uint32_t best_of = 1;
  uint64_t sample_seed = 0;
};

struct Scene {
  std::string name;
  std::string about;
  paged::ModelConfig model;
  std::vector<Conversation> conversations;
  uint32_t requests() const;  // Turns of all conversations.
};

// Makes scenes with about `requests` requests in all.
std::vector<Scene> make_scenes(uint32_t requests, uint64_t seed);

struct SceneResult {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t computed_tokens = 0;  // With the cache, answers included.
  uint64_t computed_tokens_without = 0;
  uint64_t answered_tokens = 0;
  uint64_t logits_hits = 0;
  uint64_t forks = 0;
  double seconds = 0;
  double seconds_without = 0;
  uint64_t logits = 0;     // Logit vectors compared.
  uint64_t different = 0;  // Compared vectors that differ.

  double speed_up() const { return seconds > 0 ? seconds_without / seconds : 0; }
};

// Called after each finished request, in both runs.
using Progress = std::function<void()>;
SceneResult run_scene(const Scene& scene, const Progress& progress);

}  // namespace stemma::cli
