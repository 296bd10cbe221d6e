#include "replay/replay.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "replay/bounds.h"
#include "stemma/cache.h"
#include "stemma/clock.h"

namespace stemma::replay {
namespace {

// A cache for one replay, with its clock.
class Player {
 public:
  Player(const Trace& trace, const ReplayOptions& options) : trace_(trace), options_(options) {}

  // Returns an empty string, or why the cache could not be created.
  std::string create() {
    Options options;
    options.groups = {
        {.block_tokens = 1, .capacity_blocks = static_cast<uint32_t>(options_.capacity_blocks)}};
    options.policy = options_.policy;
    options.clock = &clock_;
    auto cache = PagedCache::create(options);
    if (!cache) return cache.error().to_string();
    cache_.emplace(std::move(*cache));
    return {};
  }

  // Returns an empty string and sets `hits` to the blocks found, or returns the error.
  std::string play(const TraceRequest& request, uint32_t& hits) {
    clock_.set_ns(request.time_ns + 1);
    const auto blocks =
        static_cast<uint32_t>(std::min<uint64_t>(request.blocks, options_.capacity_blocks));
    hits = 0;
    if (blocks == 0) return {};
    LeaseOptions how;
    // The end word stands for what a real prompt has to compute. It never gets room and is never
    // committed, so a path that is fully cached takes nothing.
    how.draft_tokens = blocks;
    if (options_.hints) how.retain.session = SessionId{request.session};
    auto lease = cache_->lease(scope_, {prompt(request, blocks)}, how);
    if (!lease) return lease.error().to_string();
    hits = lease->reused();
    if (const auto done = lease->commit(blocks); !done) return done.error().to_string();
    if (options_.hints) {
      how.retain.finish = request.finish;
      if (request.output_tokens != TraceRequest::kUnknown) {
        how.retain.output_tokens = request.output_tokens;
      }
    }
    const auto released = lease->release({.retain = &how.retain});
    return released ? std::string() : released.error().to_string();
  }

  uint64_t evictions() const { return cache_->stats().evicted_blocks; }

 private:
  std::span<const Token> prompt(const TraceRequest& request, uint32_t blocks) {
    const std::span<const Token> all = trace_.blocks_of(request);
    // The end word stands behind the blocks in the trace.
    if (blocks == all.size()) return {all.data(), all.size() + 1};
    cut_.assign(all.begin(), all.begin() + blocks);
    cut_.push_back(Trace::kEndWord);
    return cut_;
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  ManualClock clock_;
  std::optional<PagedCache> cache_;
  Scope scope_ = *Scope::make({.model = "trace"});
  std::vector<Token> cut_;
};

}  // namespace

double weight_of_first(uint64_t blocks, uint32_t block_tokens) noexcept {
  const auto n = static_cast<double>(blocks);
  return n + block_tokens / kWeightTokens * n * (n + 1) / 2;
}

bool can_replay(const std::string& policy) {
  return policy == "min" || policy == "infinite" || knows_policy(policy);
}

std::string replay(const Trace& trace, const ReplayOptions& options, ReplayResult& out) try {
  if (!can_replay(options.policy)) return "there is no policy '" + options.policy + "'";
  if (options.policy == "infinite") {
    out = replay_infinite(trace, options);
    return {};
  }
  if (options.capacity_blocks == 0) return "a cache has at least one block";
  if (options.policy == "min") {
    out = replay_min(trace, options);
    return {};
  }
  if (options.capacity_blocks > kMostBlocks) return "a cache has at most 134217728 blocks";
  out = {};
  out.policy = options.policy;
  out.hints = options.hints;
  out.capacity_blocks = options.capacity_blocks;
  out.requests = trace.requests.size();
  out.block_refs = trace.block_refs;
  if (options.keep_request_hits) out.request_hits.reserve(trace.requests.size());
  Player player(trace, options);
  if (std::string problem = player.create(); !problem.empty()) return problem;
  const auto start = std::chrono::steady_clock::now();
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const TraceRequest& request = trace.requests[r];
    uint32_t hits;
    if (std::string problem = player.play(request, hits); !problem.empty()) {
      return "request " + std::to_string(r + 1) + ": " + problem;
    }
    out.block_hits += hits;
    out.weighted_refs += weight_of_first(request.blocks, trace.block_tokens);
    out.weighted_hits += weight_of_first(hits, trace.block_tokens);
    if (options.keep_request_hits) out.request_hits.push_back(hits);
    if (options.progress && r % kProgressEvery == 0) options.progress(r);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.evictions = player.evictions();
  return {};
} catch (const std::bad_alloc&) {
  return "no memory for a cache of " + std::to_string(options.capacity_blocks) + " blocks";
}

}  // namespace stemma::replay
