// A Request as the engine keeps it, from submit() to its last token.
//
//   waiting --lease--> running: [computed, text.size()) is evaluated in chunks, then one token a step
//      ^                  |
//      '---- preempted ---+--> finished
//
// Invariant while running: computed <= lease.length() <= text.size(); KV of [0, computed) is
//                          written; the last sampled token is a word without KV.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/paged/forward.h"
#include "engine/paged/text.h"
#include "stemma/cache.h"

namespace stemma::paged {

struct RequestSpec {
  Text prompt = {};
  uint32_t adapter = 0;  // Which of the engine's models; each has a scope of its own.
  uint32_t max_new_tokens = 8;
  uint64_t sample_seed = 0;   // 0 is greedy.
  uint32_t best_of = 1;       // Continuations that share the prompt's blocks (fork).
  uint32_t branch_after = 0;  // How many tokens of the answer they share too.
  uint32_t guess_tokens = 0;  // Tokens a draft model guesses ahead (wrong ones are rewound).
  uint32_t retries = 0;       // Answers thrown away and sampled again (rewind to the prompt's end).
  bool want_logits = true;    // Start from anchored logits when the whole prompt is known.
  LeaseOptions lease = {};    // Retention, tenant, lookup; Retain::ranges must outlive the request.
};

// The sample_seed of a continuation of best_of; 0 is the request itself.
uint64_t branch_seed(uint64_t seed, uint32_t branch) noexcept;

struct Request {
  uint64_t id = 0;
  RequestSpec spec = {};
  Text text = {};  // The prompt and what was sampled.
  uint32_t prompt_tokens = 0;

  Lease lease = {};
  BlockTables tables = {};
  RunningState state = {};  // At depth `computed`.
  uint32_t computed = 0;
  std::vector<float> logits = {};         // After all of `text`; empty when not known.
  std::vector<float> prompt_logits = {};  // After the prompt, for retries.

  uint64_t started = 0;           // Counts admissions: the largest is the youngest.
  uint32_t waited_steps = 0;      // Steps in which it was refused because blocks were short.
  uint32_t preempted = 0;         // How often it was preempted.
  uint64_t copies_at = 0;         // For a branch: the step that carries out its copies; 0 = done.
  uint32_t checkpoint_depth = 0;  // Where a checkpoint would have helped this request; 0 = nowhere.
  std::vector<std::optional<BlockId>> checkpoint_slots = {};  // Drafted, not committed yet.
  bool finished = false;
  std::optional<Error> error = {};  // Why it ended without its tokens.

  uint32_t generated() const noexcept { return text.size() - prompt_tokens; }
};

}  // namespace stemma::paged
