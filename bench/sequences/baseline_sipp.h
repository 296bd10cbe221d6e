// Sipp, system 1 of the survey, with both of its ways of reuse switched on.
//
// A session keeps its sequence until a session that has none needs it, and reuses what its own last
// request left there. When a request ends its state is saved for the session, to be used up to the last
// token but one of the prompt; what is saved again replaces what was. Out goes what has the fewest
// tokens, then hits, then was used longest ago. Nothing is shared between sessions. (The default
// interval of 128 tokens never applies: the engine captures at the prompt's end only.)
//
// A recurrent sequence is reused only when it grows; a state of one that is past the boundary fails to
// be cut, and the request starts empty. Windows are cut like full attention, by guarding nothing: such
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
    Tokens tokens;  // What it is for; the state has more.
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
  // Loads it and cuts it to what it is for.
  bool restore(const Snapshot& snapshot, SequenceId sequence);
  void store(const Request& request, SequenceId sequence);

  std::vector<Slot> slots_;
  std::vector<Snapshot> snapshots_;
  uint64_t now_ = 0;
};

}  // namespace stemma::bench::sequences
