// A World is one random schedule: a model of some kind, a cache that is too small, prompts that
// share, and engines that do all an engine may do while the cache forgets under their hands.
//
// Everything follows from the seed (with one thread, to the last block id).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/paged/engine.h"
#include "engine/paged/random.h"
#include "oracle/author.h"
#include "oracle/judge.h"
#include "oracle/models.h"

namespace stemma::oracle {

// What a set of schedules did, to show that it tested what it claims.
struct Tally {
  struct Kind {  // Without what branches inherit from their request.
    uint64_t queried_tokens = 0;
    uint64_t reused_tokens = 0;
    uint64_t checkpoints_loaded = 0;
    double reuse_percent() const;
  };
  paged::EngineCounts engines;
  std::array<Kind, kModelKinds> kinds;
  uint64_t schedules = 0;
  uint64_t requests = 0;
  uint64_t logits = 0;  // Compared.
  uint64_t evictions = 0;
  uint64_t queried_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t resets = 0;
  uint64_t lookups = 0;
  uint64_t stale_walks = 0;
  double cached_seconds = 0;
  double plain_seconds = 0;

  Tally& operator+=(const Tally& other);
  double reuse_percent() const;
  std::string text() const;
};

struct WorldConfig {
  uint64_t seed = 1;
  uint32_t threads = 1;  // Each with an engine of its own over one cache.
  bool churn = false;    // Others publish and forget beside them.
  // Narrows chance, for tests of one feature. -1: any.
  int model_kind = -1;
  bool force_media = false;
  bool force_overlap = false;
  bool allow_retries = true;
  bool allow_interruptions = true;  // evict, reset, truncate, pin ... in between.
};

// Part of a schedule's copies fail, after having written garbage; with several threads some are
// slow.
class FlakyArena final : public paged::KvArena {
 public:
  FlakyArena(const paged::KvLayout& layout, uint32_t fail_percent, bool slow, uint64_t seed)
      : KvArena(layout), fail_percent_(fail_percent), slow_(slow), seed_(seed) {}
  void copy(std::span<const BlockCopy> copies, Done done, void* user) override;

 private:
  uint32_t fail_percent_;
  bool slow_;
  uint64_t seed_;
  std::atomic<uint64_t> calls_{0};
};

// Makes an engine; planted bugs come in here.
using EngineFactory = std::function<std::unique_ptr<paged::Engine>(
    PagedCache&, paged::KvArena&, std::span<const paged::Adapter>, const paged::EngineOptions&)>;
std::unique_ptr<paged::Engine> make_engine(PagedCache& cache, paged::KvArena& arena,
                                           std::span<const paged::Adapter> adapters,
                                           const paged::EngineOptions& options);

struct Outcome {
  std::string wrong;  // "" when every logit was right.
  Tally tally;
};
Outcome run_world(const WorldConfig& config, const EngineFactory& factory = make_engine);

}  // namespace stemma::oracle
