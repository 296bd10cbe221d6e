// The vocabulary in which tests tell stories about a SequenceCache.
//
// A SequenceRig is a cache over an engine of opaque sequences whose contents can be judged. It
// plays the scheduler: it begins requests, computes what is not available, and after every step
// checks the invariants: positions reported as available are in the sequence and correct, idle
// sequences are correct, free ones are empty, no other sequence was disturbed, and the books
// balance.
//
//   SequenceRig rig(hybrid_engine());
//   Request a = rig.begin(tokens(100), {.session = "a"});
//   rig.run(a);
//   rig.answer(a, tokens(20, 2));
//   rig.finish(a);
//   EXPECT_EQ(rig.chat(a.text + tokens(9, 3)).reused_tokens, 120U);
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "stemma/sequence.h"
#include "support/cache_fixture.h"
#include "support/engine_kinds.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma {

// How gtest shows our enums.
inline void PrintTo(SequenceMiss reason, std::ostream* out) { *out << to_string(reason); }
inline void PrintTo(CaptureFate fate, std::ostream* out) { *out << to_string(fate); }
inline void PrintTo(SequenceId id, std::ostream* out) { *out << "sequence " << to_index(id); }
inline void PrintTo(SequenceState state, std::ostream* out) {
  const char* const names[] = {"free", "idle", "leased", "broken"};
  *out << names[static_cast<uint32_t>(state)];
}

namespace test {

// ---- Requests -----------------------------------------------------------------------------------

// A prompt for tests that do not depend on its words.
inline const Text kText = tokens(100, 1);

// A turn, and all of its words so far.
struct Request {
  Turn turn;
  Text text;
  uint32_t evaluate_at_least = 1;
};

// An engine's input for a text: the tokens, with contents instead of placeholders.
std::vector<Token> words_of(const Text& text);

// Options small enough for thousands of caches: 4 MiB for saved state.
SequenceOptions small_cache();

class SequenceRig {
 public:
  explicit SequenceRig(const EngineOptions& engine_options = full_engine(),
                       const SequenceOptions& options = small_cache());
  SequenceRig(const SequenceRig&) = delete;
  SequenceRig& operator=(const SequenceRig&) = delete;
  ~SequenceRig();

  // ---- The steps of a request. The try_ forms pass errors on, the others end the test. ----------

  Result<Request> try_begin(const Text& text, const TurnOptions& options = {});
  Result<Request> try_begin(const Scope& in, const Text& text, const TurnOptions& options = {});
  Request begin(const Text& text, const TurnOptions& options = {});
  // Carries out the plan and checks it. Returns the available positions.
  Result<uint32_t> try_execute(Request& request);
  uint32_t execute(Request& request);
  // Computes from computed() up to `end` (length at most), a stop at a time.
  Result<void> try_compute(Request& request, uint32_t end = 0xFFFF'FFFFU);
  void compute(Request& request, uint32_t end = 0xFFFF'FFFFU);
  // execute() and compute(). Returns the report made after execution.
  SequenceReport run(Request& request);
  // Adds words and computes them.
  void answer(Request& request, const Text& words);
  Result<void> try_finish(Request& request, const Retain* retain = nullptr);
  void finish(Request& request, const Retain* retain = nullptr);
  void abandon(Request& request);
  Result<void> try_rewind(Request& request, uint32_t n);
  Result<Request> try_fork(Request& request, const TurnOptions& options = {});
  Result<void> try_shift(Request& request, uint32_t keep, uint32_t discard);

  // ---- Whole stories ----------------------------------------------------------------------------

  // A whole request.
  SequenceReport chat(const Text& text, const TurnOptions& options = {});
  SequenceReport chat(const Scope& in, const Text& text, const TurnOptions& options = {});
  // A whole request with an answer. Returns all of its words.
  Text talk(const Text& text, const Text& answer, const TurnOptions& options = {});
  // Saves everything that waits, by default at the expense of older saved state.
  Drained drain(const DrainLimits& limits = {.evict = true});
  // Lets the engine compute the prefix. Returns how often it was called.
  struct Warmed {
    Result<SequenceReport> report;
    uint32_t batches = 0;
    uint32_t first = 0;  // Where the first of them began.
  };
  Warmed warm(const Text& prefix, const TurnOptions& options = {});
  // Saves everything that waits, then uses every sequence for another text and frees it again.
  void take_all_sequences();
  // The engine makes its context anew.
  void renew_context();

  // What a request for this prompt would reuse now.
  SequenceReport look(const Text& text, const TurnOptions& options = {}) const;
  uint32_t hit(const Text& text, const TurnOptions& options = {}) const;
  // How much of exactly this text is there, including its last position.
  uint32_t kept(const Text& text) const;

  // ---- Looking ----------------------------------------------------------------------------------

  // Checks the invariants. `what` names the step before.
  void check(const std::string& what);
  SequenceInfo info(const Request& request) const {
    return cache.sequence(request.turn.sequence());
  }
  SequenceInfo info(uint32_t sequence) const { return cache.sequence(SequenceId{sequence}); }
  // Everything a caller could see except counters, as text. If it is equal before and after a call,
  // the call changed nothing.
  std::string books() const;
  uint64_t calls() const;  // The engine's calls, including computing.
  uint64_t calls(Call call) const { return engine.counts().of(call); }
  uint64_t fate(CaptureFate fate) const {
    return cache.stats().captures[static_cast<uint32_t>(fate)];
  }
  // The depths that can be reused now, ascending.
  std::vector<uint32_t> depths(SequenceContent::Kind kind) const;

  FakeSequences engine;
  EngineClock clock;
  SequenceCache cache;
  Scope scope = scope_of({.model = "a model"});
  uint32_t chunk_tokens = 512;  // No batch is larger.
  // Free sequences may still have contents: after a scope was dropped, if clearing failed.
  bool free_is_empty = true;
  std::vector<uint32_t> stops;  // Where batches ended since it was last cleared.

 private:
  static SequenceOptions with_clock(SequenceOptions options, const Clock& clock);
  // Calls `step` and checks every other sequence: idle ones must be unchanged or empty, those of
  // other turns unchanged.
  template <class Step>
  auto undisturbed(SequenceId own, const std::string& what, Step step);
  void judge(const Request& request);

  uint64_t saved_limit_;
  std::vector<std::vector<Token>> known_;  // The words last seen in each sequence.
};

}  // namespace test
}  // namespace stemma
