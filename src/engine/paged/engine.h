// An Engine serves requests over a PagedCache by continuous batching: every step evaluates a chunk
// of each running request together, commits what was written, samples, and takes in new requests.
//
// It is a reference. Read it next to docs/guide/reference-engine.md if you want to put Stemma under
// your own engine. The steps that talk to the cache are small virtual functions, in the order in
// which a request meets them. Tests replace them with wrong ones to check that the oracle notices.
//
// Invariant:  the logits of every sampled position equal evaluate_plain()'s, bit by bit.
// Threading:  one thread at a time. Several engines, each on its thread, may share one cache and
//             one arena.
// Ownership:  cache, arena and models outlive the engine. Fences of its releases live as long as
//             the engine, so stop all engines that share a cache before destroying any of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/paged/request.h"

namespace stemma::paged {

// A model under a scope. Two of them share no blocks, whatever their prompts share.
struct Adapter {
  const Model* model = nullptr;
  Scope scope;
};

// Is told about an engine's requests, on the engine's thread, in the middle of a step.
class Listener {
 public:
  virtual ~Listener() = default;
  // `request.logits` are those after all of `request.text`; a token is sampled from them next.
  virtual void on_logits(const Request& request) { (void)request; }
  virtual void on_finished(const Request& request) { (void)request; }
};

// Guesses the next token after a text. Wrong guesses cost time, nothing else.
class DraftModel {
 public:
  virtual ~DraftModel() = default;
  virtual Token guess(const Request& request, const Text& text) = 0;
};

struct EngineOptions {
  uint32_t max_running = 8;
  uint32_t chunk_tokens = 32;       // The most of one request in one step.
  uint32_t batch_tokens = 128;      // The most of all requests in one step.
  uint32_t checkpoint_tokens = 64;  // Recurrent states are saved at multiples of this, and where
                                    // prompts end, answers end, and lookups said it would help.
  uint32_t patience_steps = 64;     // A request refused this often preempts the youngest one;
                                    // one that was preempted itself waits longer.
  uint32_t give_up_steps = 1000;    // Refused this often with nothing left to preempt, it fails.
  bool adopt_canonical = true;      // Give up private duplicates of blocks that others have cached.
  // Launches one step more after a request's last one, before it is known that it was the last, as
  // engines do to keep the device busy. That step's writes land after the release, which therefore
  // carries a fence.
  bool overlap = false;
  // A branch's copies are carried out this many steps after the fork, as in engines that copy on
  // another stream. The source must not change, whatever its request does meanwhile.
  uint32_t branch_copy_steps = 0;
  Listener* listener = nullptr;
  DraftModel* draft = nullptr;
};

struct EngineCounts {
  uint64_t steps = 0;
  uint64_t finished = 0;
  uint64_t failed = 0;  // Finished with an error; included in `finished`.
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;    // By leases, including those of forks and resumed requests.
  uint64_t leased_tokens = 0;    // What those leases asked for.
  uint64_t forked_tokens = 0;    // Counted in both: what branches took from their request.
  uint64_t computed_tokens = 0;  // Positions that went through the layers.
  uint64_t sampled_tokens = 0;
  uint64_t logits_hits = 0;  // Prompts that needed no forward pass at all.
  uint64_t part_copies = 0;
  uint64_t copies_failed = 0;
  uint64_t checkpoints_saved = 0;
  uint64_t checkpoints_loaded = 0;
  uint64_t forks = 0;
  uint64_t guesses_accepted = 0;
  uint64_t guesses_rejected = 0;
  uint64_t rewinds = 0;
  uint64_t retries = 0;
  uint64_t preemptions = 0;
  uint64_t refusals = 0;  // Times the cache had no room.
  uint64_t duplicates = 0;
  uint64_t late_steps = 0;

  EngineCounts& operator+=(const EngineCounts& other) noexcept;
};

class Engine {
 public:
  Engine(PagedCache& cache, KvArena& arena, std::span<const Adapter> adapters,
         const EngineOptions& options);
  virtual ~Engine();  // Ends what is still running.
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns the request's number. Continuations of best_of get numbers of their own.
  // Error: invalid_argument (an empty prompt, or one too long for the model; an unknown adapter).
  Result<uint64_t> submit(const RequestSpec& spec);
  // One round over everything. Returns whether anything is left to do.
  bool step();
  // Forgets a request; what it committed stays cached. Returns false if there is no such request.
  bool cancel(uint64_t id);
  // Gives up the youngest running request's blocks; the request waits to be resumed. The engine
  // does this itself when room is short. Returns false if none runs.
  bool preempt_youngest();

  uint32_t running() const noexcept { return static_cast<uint32_t>(running_.size()); }
  uint32_t waiting() const noexcept { return static_cast<uint32_t>(waiting_.size()); }
  const EngineCounts& counts() const noexcept { return counts_; }

 protected:
  // ---- Where a request meets the cache (cache_steps.cc) -----------------------------------------

  virtual Result<Lease> take_lease(const Request& request, const LeaseOptions& options);
  // Loads states and copies part-blocks, then settles. A failed copy is not an error: the lease has
  // stepped back then. Error: out_of_blocks; the lease cannot be used then.
  virtual Result<void> carry_out_copies(Request& request);
  virtual void read_tables(Request& request);
  // KV of [0, request.computed) is written.
  virtual void commit(Request& request);
  virtual void save_checkpoint(Request& request);
  virtual void end_lease(Request& request, const Retain* retain, Fence* fence);

  PagedCache& cache_;
  KvArena& arena_;
  EngineCounts counts_;

 private:
  using RequestPtr = std::unique_ptr<Request>;
  struct Work {
    Request* request = nullptr;
    std::vector<Token> guesses = {};
    std::vector<RunningState> states_after = {};
  };
  // A step that was launched for a request that has ended since.
  struct LateStep final : Fence {
    Text text;
    BlockTables tables;
    RunningState state;
    Chunk chunk;
    std::atomic<bool> landed{false};
    bool signalled() noexcept override { return landed.load(std::memory_order_acquire); }
  };

  // ---- A step (engine.cc) -----------------------------------------------------------------------
  void land_late_steps();
  void start_branches();
  void grow_running();
  void admit_waiting();
  Result<void> start(Request& request);
  void plan(std::vector<Work>& works, std::vector<Chunk>& chunks);
  void add_guesses(Work& work);
  void settle(Work& work, const Chunk& chunk);
  void settle_guesses(Work& work, const Chunk& chunk);
  void finish_prompt(Request& request);
  void sweep();

  // ---- Turns in a request's life (turns.cc) -----------------------------------------------------
  void sample_next(Request& request);
  void fork_branches(Request& request);
  Result<void> start_branch(Request& branch);
  bool retry(Request& request);
  void finish(Request& request);
  void fail(Request& request, const Error& error);
  Fence* launch_late_step(Request& request);

  uint32_t patience(const Request& request) const;
  bool checkpoint_due(const Request& request) const;
  uint32_t chunk_end(const Request& request, uint32_t budget) const;
  const Adapter& adapter(const Request& request) const { return adapters_[request.spec.adapter]; }

  std::vector<Adapter> adapters_;
  EngineOptions options_;
  std::deque<RequestPtr> waiting_;
  std::vector<RequestPtr> running_;
  std::deque<LateStep> late_steps_;  // All ever launched: a fence must live until it is seen.
  size_t landed_ = 0;
  uint64_t next_id_ = 1;
  uint64_t admissions_ = 0;
};

}  // namespace stemma::paged
