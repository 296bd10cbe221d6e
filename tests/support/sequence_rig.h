// The vocabulary in which tests tell stories about a SequenceCache.
//
// A SequenceRig is a cache over an engine of opaque sequences whose contents can be judged. It plays
// the scheduler: it begins requests, computes what is not available, and after every step holds the
// cache to what always holds: what is said to be available is in the sequence and right, what idles is
// right, what is free is empty, nobody else was disturbed, and the books balance.
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

// ---- Requests -----------------------------------------------------------------------------------------

// A prompt for tests to which its words do not matter.
inline const Text kText = tokens(100, 1);

// A turn, and all of its words so far.
struct Request {
  Turn turn;
  Text text;
  uint32_t evaluate_at_least = 1;
};

// What an engine computes of a text: the tokens, and contents instead of placeholders.
std::vector<Token> words_of(const Text& text);

// Small enough to be made thousands of times: 4 MiB for what is saved.
SequenceOptions small_cache();

class SequenceRig {
 public:
  explicit SequenceRig(const EngineOptions& engine_options = full_engine(),
                       const SequenceOptions& options = small_cache());
  SequenceRig(const SequenceRig&) = delete;
  SequenceRig& operator=(const SequenceRig&) = delete;
  ~SequenceRig();

  // ---- The steps of a request. The try_ forms pass errors on, the others end the test. --------------

  Result<Request> try_begin(const Text& text, const TurnOptions& options = {});
  Result<Request> try_begin(const Scope& in, const Text& text, const TurnOptions& options = {});
  Request begin(const Text& text, const TurnOptions& options = {});
  // Carries the plan out and judges it. Returns what is available.
  Result<uint32_t> try_execute(Request& request);
  uint32_t execute(Request& request);
  // Computes from computed() up to `end` (length at most), a stop at a time.
  Result<void> try_compute(Request& request, uint32_t end = 0xFFFF'FFFFU);
  void compute(Request& request, uint32_t end = 0xFFFF'FFFFU);
  // execute() and compute(). The report is that of after execution.
  SequenceReport run(Request& request);
  // Adds words and computes them.
  void answer(Request& request, const Text& words);
  Result<void> try_finish(Request& request, const Retain* retain = nullptr);
  void finish(Request& request, const Retain* retain = nullptr);
  void abandon(Request& request);
  Result<void> try_rewind(Request& request, uint32_t n);
  Result<Request> try_fork(Request& request, const TurnOptions& options = {});
  Result<void> try_shift(Request& request, uint32_t keep, uint32_t discard);

  // ---- Whole stories --------------------------------------------------------------------------------

  // A whole request.
  SequenceReport chat(const Text& text, const TurnOptions& options = {});
  SequenceReport chat(const Scope& in, const Text& text, const TurnOptions& options = {});
  // A whole request with an answer. Returns all of its words.
  Text talk(const Text& text, const Text& answer, const TurnOptions& options = {});
  // Saves all that waits, at the expense of what was saved before, unless told otherwise.
  Drained drain(const DrainLimits& limits = {.evict = true});
  // Has the prefix computed by the engine, and says how often it was asked to compute.
  struct Warmed {
    Result<SequenceReport> report;
    uint32_t batches = 0;
    uint32_t first = 0;  // Where the first of them began.
  };
  Warmed warm(const Text& prefix, const TurnOptions& options = {});
  // Saves what waits, then takes every sequence for something else and gives it up again.
  void take_all_sequences();
  // The engine makes its context anew.
  void renew_context();

  // What a request for this prompt would reuse now.
  SequenceReport look(const Text& text, const TurnOptions& options = {}) const;
  uint32_t hit(const Text& text, const TurnOptions& options = {}) const;
  // How much of this very text is there, its last position included.
  uint32_t kept(const Text& text) const;

  // ---- Looking --------------------------------------------------------------------------------------

  // Holds the cache to what always holds. `what` says after which step.
  void check(const std::string& what);
  SequenceInfo info(const Request& request) const {
    return cache.sequence(request.turn.sequence());
  }
  SequenceInfo info(uint32_t sequence) const { return cache.sequence(SequenceId{sequence}); }
  // Everything a caller could see but for counters, as text: equal before and after means that nothing
  // has changed.
  std::string books() const;
  uint64_t calls() const;  // Of the engine, computing included.
  uint64_t calls(Call call) const { return engine.counts().of(call); }
  uint64_t fate(CaptureFate fate) const {
    return cache.stats().captures[static_cast<uint32_t>(fate)];
  }
  // Depths of what can be reused now, ascending.
  std::vector<uint32_t> depths(SequenceContent::Kind kind) const;

  FakeSequences engine;
  EngineClock clock;
  SequenceCache cache;
  Scope scope = scope_of({.model = "a model"});
  uint32_t chunk_tokens = 512;  // No batch is larger.
  // What is free may still lie in the engine: after a scope was dropped, when clearing failed.
  bool free_is_empty = true;
  std::vector<uint32_t> stops;  // Where batches ended, since somebody cleared it.

 private:
  static SequenceOptions with_clock(SequenceOptions options, const Clock& clock);
  // Calls `step` and expects every sequence but this one, if it was idle, to be as it was or empty; and
  // if it was another turn's, to be as it was.
  template <class Step>
  auto undisturbed(SequenceId own, const std::string& what, Step step);
  void judge(const Request& request);

  uint64_t saved_limit_;
  std::vector<std::vector<Token>> known_;  // The words last seen in each sequence.
};

}  // namespace test
}  // namespace stemma
