// The options of a SequenceCache and of one turn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/options.h"
#include "stemma/pinned_memory.h"
#include "stemma/retention.h"
#include "stemma/sequence/saved_listener.h"

namespace stemma {

// Where a prefix may come from.
enum class Reuse : uint8_t {
  disabled = 0,    // Nowhere: every request starts empty and leaves nothing.
  live = 1,        // Sequences that are in the engine.
  saved = 2,       // Saved entries; a sequence is emptied when its request ends.
  everything = 3,  // Both.
};

struct SequenceOptions {
  Reuse reuse = Reuse::everything;

  // Room for saved segments (with their index), states and checkpoints. 0 = nothing is saved.
  uint64_t saved_bytes = 256U << 20U;
  // The share of saved_bytes for checkpoints, 0 to 1. Used if the engine has checkpoints and other
  // layers attend to the whole past.
  double checkpoint_share = 0.25;
  uint64_t logits_bytes = 0;  // Room for attached logits; 0 = none are kept.

  uint32_t segment_tokens = 64;  // Positions in a saved segment; a power of two, 1 to 1024.
  // For engines that cannot rewind freely, the cache keeps checkpoints (states, if the engine has
  // no segments) at boundaries of a prompt: where messages end, where the prompt parts from cached
  // ones, at its end, and in between at intervals. Boundaries closer than 64 tokens are merged,
  // because short batches are slow.
  //
  // Boundaries before this depth, or before interval_tokens if that is less, are not kept. The end
  // of a prompt always is.
  uint32_t least_tokens = 32;
  // A checkpoint at every multiple of this many tokens, also below 64. 0 = the cache chooses: at
  // least 256 tokens and about an eighth of the prompt, and more where saving takes long or the
  // store is small. A number larger than the context means none.
  uint32_t interval_tokens = 0;
  // At most this many boundaries of one request are kept. They are chosen in this order: its end,
  // where it parts from cached prompts, the first and the last message, intervals, then other
  // messages. (The end is not kept if a boundary less than four tokens before it is kept.)
  uint32_t marks = 8;
  // Captures that may wait for drain(); a newer one replaces the oldest.
  uint32_t pending_captures = 64;
  uint32_t sessions = 65'536;  // Names remembered; the one unused longest is forgotten.

  std::vector<TenantQuota> quotas = {};  // For saved segments.
  std::string policy = "lru";
  // Assumed costs until the first measurement: of computing a token and of moving bytes.
  uint64_t compute_token_ns = 1'000'000;
  uint64_t move_byte_ps = 200;
  uint64_t move_call_ns = 50'000;
  // The extra time a token takes for each cell of the context that it attends to; 0: unknown until
  // it is measured.
  uint64_t attention_cell_ps = 0;
  // For an engine on a device: pins the buffers that ranges go through
  // (EngineTraits::range_tokens). Pass the hook of the device's driver, such as cuda_memory_hook()
  // of stemma/tier/host_tier.h. It must outlive the cache and its turns. Null: plain memory.
  HostMemoryHook* pinned = nullptr;
  // Threads that split and join such ranges. Unset: two fewer than the machine has, at most 12.
  // 0: the engine's thread does it.
  std::optional<uint32_t> range_threads = {};
  const Clock* clock = nullptr;       // Outlives the cache and its turns; null = monotonic.
  SavedListener* listener = nullptr;  // Outlives them too; null = no listener.
};

struct TurnOptions {
  // The conversation's name, if it has one. Affects affinity and retention, never what is shared.
  std::string_view session = {};
  bool exclusive = true;  // begin() fails with busy while the session has another turn under way.
  // The tenant that pays for saved entries, unless another tenant pays for the scope already.
  TenantId tenant = kNoTenant;
  Reuse reuse = Reuse::everything;  // Limits reuse further than the cache's own mode does.
  // For encoder prompts and embeddings: starts empty and keeps nothing, whatever the words are.
  bool bypass = false;
  bool keep = true;                 // false: what is computed is forgotten at the end.
  uint32_t at_most = 0xFFFF'FFFFU;  // Make no more than this many positions available.
  uint32_t evaluate_at_least = 1;   // Units at the prompt's end that must be evaluated; 0 means 1.
  uint32_t reserve_tokens = 0;      // Room to leave for the answer.
  // Asks for logits kept for exactly this prompt. If there are any, nothing needs to be evaluated.
  bool want_logits = false;
  // Depths at which messages end, ascending: the next prompt may part from this one there.
  std::span<const uint32_t> message_ends = {};
  Retain retain = {};
};

}  // namespace stemma
