// Sipp, system 1 of the survey, with both of its ways of reuse switched on.
//
// A session keeps its sequence until a session without one needs it, and reuses what its own last
// request left there. When a request ends, its state is saved for the session, usable up to the
// last token but one of the prompt; a new save replaces the old one. The state with the fewest
// tokens is evicted first, then that with the fewest hits, then that used longest ago. Nothing is
// shared between sessions. (The default interval of 128 tokens never applies: the engine captures
// at the prompt's end only.)
//
// A recurrent sequence is reused only when it grows; a state that is past the boundary cannot be
// cut, and the request starts empty. Windows are cut like full attention, without any check: such
// rows are wrong, and are shown as wrong.
#pragma once

#include <string>
#include <vector>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class Sipp final : public BaselinePolicy {
 public:
  explicit Sipp(const Setting& setting);
  uint64_t stored_bytes() const override;
  uint64_t budget_bytes() const override { return setting_.stored_bytes; }

 private:
  static constexpr size_t kEntries = 32;

  // A physical sequence; free when the session has no name.
  struct Slot {
    std::string session;
    Tokens mirror;
    uint64_t last_used = 0;
  };
  struct Snapshot {
    std::string session;
    Tokens tokens;  // The words it serves; the state holds more.
    uint32_t state_tokens = 0;
    Blob bytes;
    uint64_t hits = 0;
    uint64_t last_used = 0;
  };

  Start start(const Request& request) override;
  void finish(const Request& request, SequenceId sequence) override;
  bool give_up_room(SequenceId working) override;
  // The session's own, else a free one, else that of the session unused longest, emptied.
  uint32_t admit(const std::string& session);
  void free(uint32_t slot);
  Snapshot* find_snapshot(const Request& request);
  // Loads the state and cuts it to the words it serves.
  bool restore(const Snapshot& snapshot, SequenceId sequence);
  void store(const Request& request, SequenceId sequence);

  std::vector<Slot> slots_;
  std::vector<Snapshot> snapshots_;
  uint64_t now_ = 0;
};

}  // namespace stemma::bench::sequences
