// llama-server's rules, with a unified context.
//
// A request goes to the idle slot that shares most of the prompt, if that is more than a tenth of
// it, else to the slot unused longest. A slot that would lose more than half of its tokens, or was
// chosen by age, is first saved as a whole state in RAM. An entry is loaded instead if at least a
// quarter of it is common and it is better in both fractions (of the entry, of the prompt); it is
// moved out of RAM. Entries that a new one contains are removed, a prompt that an entry contains is
// not saved, the oldest goes first. With `idle_slots_saved`, the default there, all other slots are
// saved and cleared whenever a request starts.
//
// Windows and recurrent states need checkpoints to go back. A slot owns its checkpoints, and an
// entry takes them along. They are made before the last user message, 4 tokens before the prompt's
// end and a batch and 4 tokens before it, and before other user messages if the last checkpoint is
// far enough; at most 32. As in the original, a window that has just been restored counts as one
// token too short, so a checkpoint is used. Where the original would then step back one token more
// than the checkpoint covers, this does not.
//
// Checkpoints of slots count like entries, and entries are removed to make room for them, so that
// all policies have equal memory.
#pragma once

#include <deque>
#include <vector>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class LlamaServer final : public BaselinePolicy {
 public:
  LlamaServer(const Setting& setting, bool idle_slots_saved);
  uint64_t stored_bytes() const override;
  uint64_t budget_bytes() const override { return setting_.stored_bytes; }

 private:
  static constexpr size_t kCheckpoints = 32;
  static constexpr uint32_t kCheckpointStep = 8192 / kShrink;

  struct Checkpoint {
    uint32_t depth = 0;
    uint32_t first = 0;  // The first position of the live sequence when the checkpoint was made.
    Blob bytes;
  };
  struct Slot {
    Tokens tokens;
    std::deque<Checkpoint> checkpoints;  // By depth.
    uint64_t last_used = 0;
  };
  struct Entry {
    Tokens tokens;
    Blob state;
    std::deque<Checkpoint> checkpoints;
    uint64_t bytes() const;
  };

  Start start(const Request& request) override;
  uint32_t chunk_end(const Request& request, uint32_t begin) override;
  void before_chunk(const Request& request, SequenceId sequence, Range chunk) override;
  void finish(const Request& request, SequenceId sequence) override;
  bool give_up_room(SequenceId working) override;

  // The slot, and whether its contents are saved to RAM or loaded from there.
  uint32_t choose(const Tokens& prompt, bool* update);
  void save_slot(uint32_t number);
  void load_better(uint32_t number, const Tokens& prompt);
  void clear_slot(uint32_t number);
  // Returns how much of the prompt the slot can keep, after loading a checkpoint if it needs one.
  uint32_t keep(uint32_t number, const Tokens& prompt);
  bool far_enough(const Slot& slot, uint32_t depth) const;
  void make_room(uint64_t bytes);  // In RAM.

  const bool idle_slots_saved_;
  std::vector<Slot> slots_;
  std::deque<Entry> entries_;  // Oldest first.
  uint64_t now_ = 0;
};

}  // namespace stemma::bench::sequences
