// Statistics of sequences: one report per turn, and the sums over all turns.
#pragma once

#include <array>
#include <cstdint>

#include "stemma/stats.h"

namespace stemma {

// How part of a prompt got into its sequence.
enum class Step : uint8_t {
  stay,        // The sequence held exactly this.
  trim,        // The sequence held more, and was cut.
  fork,        // It was copied from another sequence.
  segments,    // It was loaded, in segments.
  state,       // It was loaded, as a whole state.
  checkpoint,  // The window or recurrent part was loaded.
};
inline constexpr uint32_t kStepCount = 6;

// Why less is available than the prompt would allow.
enum class SequenceMiss : uint8_t {
  none,
  unknown_scope,  // Nothing of this scope is known.
  first_use,      // Nothing known continues like this prompt.
  too_short,      // The prompt has no unit to spare beyond what must be evaluated.
  at_most,        // The caller's limit.
  media,          // Equal up to a media item whose end is not covered.
  no_rewind,      // Known, but the memory cannot go back there, and no checkpoint or state is kept.
  not_saved,      // Only a sequence holds it, and it cannot be copied from there.
  not_worth,      // Loading would take longer than computing.
  mode,           // Known, but the mode of reuse excludes it.
  bypassed,       // The cache did not look for it.
  failed,         // Found, and lost during execution.
};
inline constexpr uint32_t kSequenceMissCount = 12;

const char* to_string(Step step) noexcept;
const char* to_string(SequenceMiss reason) noexcept;

struct SequenceReport {
  uint32_t prompt_tokens = 0;
  uint32_t matched_tokens = 0;    // Verified equal to something known, usable or not.
  uint32_t reused_tokens = 0;     // Available without computing.
  uint32_t evaluated_tokens = 0;  // The rest of the prompt.
  // Positions each step contributed; for `checkpoint` the depth it was loaded at. Without
  // `checkpoint` they add up to reused_tokens.
  std::array<uint32_t, kStepCount> steps{};
  uint32_t media_to_process = 0;
  bool logits = false;    // There are logits kept for exactly this prompt.
  uint32_t failures = 0;  // Steps that failed and were replaced by others.
  uint32_t victims = 0;   // Idle sequences emptied for this turn.
  // Idle sequences emptied because computing beside them would have taken longer than restoring
  // them.
  uint32_t dropped_idle = 0;
  uint64_t restored_bytes = 0;
  uint64_t saved_bytes = 0;  // Saved from victims before they were emptied.
  uint64_t plan_ns = 0;
  uint64_t execute_ns = 0;
  uint64_t capture_ns = 0;  // The part of execute_ns that saved what would have been lost.
  Outcome outcome = Outcome::miss;
  SequenceMiss reason = SequenceMiss::none;
};

// What became of a capture: state that was to be saved.
enum class CaptureFate : uint8_t {
  saved,
  present,    // All of it was saved before.
  coalesced,  // A later capture of the same sequence includes it.
  stale,      // Its sequence was given up or cut, or cannot go back there any more.
  crowded,    // The queue was full, and it was the oldest.
  too_large,  // More than the store can ever hold, or a segment larger than the traits say.
  no_room,    // Everything in the store is in use.
  failed,     // The engine could not save it.
};
inline constexpr uint32_t kCaptureFateCount = 8;

const char* to_string(CaptureFate fate) noexcept;

struct SequenceStats {
  uint64_t turns = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t evaluated_tokens = 0;
  std::array<uint64_t, kOutcomeCount> outcomes{};
  std::array<uint64_t, kSequenceMissCount> reasons{};
  std::array<uint64_t, kStepCount> steps{};  // Turns in which a step of this kind succeeded.
  std::array<uint64_t, kStepCount> step_tokens{};
  std::array<uint64_t, kStepCount> failures{};  // Steps that failed.
  std::array<uint64_t, kCaptureFateCount> captures{};
  uint64_t quarantined = 0;    // Saved entries given up because they were bad.
  uint64_t victims = 0;        // Idle sequences emptied for others.
  uint64_t victims_saved = 0;  // Victims that were saved first.
  uint64_t relocated = 0;      // Prompts moved to the cells of idle sequences that were dropped.
  uint64_t dropped_idle = 0;   // Idle sequences emptied because computing beside them was slow.
  uint64_t stale_calls = 0;    // Calls on turns whose sequence was taken away.
  uint64_t broken = 0;         // Times that the engine failed to clear a sequence.
  uint64_t restored_bytes = 0;
  uint64_t captured_bytes = 0;
  // Time in the engine: loading (restore_ns), saving (capture_ns), and the part of capture_ns while
  // a request waited for it (waited_ns).
  uint64_t restore_ns = 0;
  uint64_t capture_ns = 0;
  uint64_t waited_ns = 0;

  // The situation now.
  uint32_t sequences = 0;
  uint32_t free_sequences = 0;
  uint32_t idle_sequences = 0;
  uint32_t leased_sequences = 0;
  uint32_t broken_sequences = 0;
  uint32_t sessions = 0;
  uint32_t pending = 0;
  uint64_t context_tokens = 0;  // Positions the engine has memory for.
  uint64_t used_tokens = 0;     // Positions taken; shared ones count once.
  uint64_t saved_bytes = 0;     // Segments, states and checkpoints.
  uint64_t segment_bytes = 0;
  uint64_t state_bytes = 0;
  uint64_t checkpoint_bytes = 0;
  uint64_t logits_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t pinned_bytes = 0;  // Buffers that a device's driver has pinned.
  uint64_t segment_evictions = 0;
  uint64_t state_evictions = 0;  // Of states and checkpoints.
  // The costs that the planner uses.
  uint64_t compute_token_ns = 0;
  uint64_t attention_cell_ps = 0;  // For each cell that a token of a prompt looks at.
  uint64_t answer_cell_ps = 0;     // For each cell that a token of an answer looks at.
  uint64_t move_byte_ps = 0;       // Loading.
  uint64_t move_call_ns = 0;
  uint64_t save_byte_ps = 0;  // Saving.
  uint64_t save_call_ns = 0;

  double hit_ratio() const noexcept {
    return prompt_tokens == 0
               ? 0.0
               : static_cast<double>(reused_tokens) / static_cast<double>(prompt_tokens);
  }
};

}  // namespace stemma
