// A SequenceCache over llama.cpp, and a judge: a second context that computes the same words from
// nothing, in the same batches as the first.
//
//   WarmRig rig(options_for(Architecture::hybrid));
//   rig.ask(words(100), {.session = "a"});
//   const Asked next = rig.ask(words(100) + words(20, 2), {.session = "a"});
//   EXPECT_EQ(next.step(Step::stay), 100U);
//   rig.expect_exact(next);
//
// Threading:  one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llama/faulty_sequences.h"
#include "llama/llama_rig.h"
#include "stemma/sequence.h"
#include "support/cache_fixture.h"
#include "support/text.h"

namespace stemma::test {

// How much logits may differ because of other batches or neighbouring sequences, in units of their
// standard deviation. That is about 240 for the models we make, so an absolute 5e-3, right for
// logits of a few units, would be 2e-5 of it: less than llama.cpp rounds by when it computes the
// same in other batches.
// Measured: other batches at most 1.1e-3 (0.25 of 240), neighbours 1e-4; one other word, 60 before,
// at least 1e-2.
inline constexpr double kNear = 2e-3;
// The same without flash attention, whose kernels round most. Measured: at most 2.1e-4, in a window
// whose cells lie in another order, and less than 2.1e-5 (5e-3 of 240) elsewhere.
inline constexpr double kNearer = 5e-4;

// `count` random words of the models' vocabulary.
Text words(uint32_t count, uint64_t seed = 1);

// A request and its state so far.
struct Asked {
  Turn turn;
  Text text;
  SequenceReport report;       // After execute().
  std::vector<uint32_t> ends;  // Where the batches of everything in the sequence ended.
  bool same_split = true;      // None of them is cut.
  // After the prompt, and after each word that was said since.
  std::vector<std::vector<float>> logits;

  uint32_t step(Step step) const { return report.steps[static_cast<uint32_t>(step)]; }
};

class WarmRig {
 public:
  explicit WarmRig(const LlamaOptions& options, const SequenceOptions& cache_options = still());

  // Plans by figures that never change: those of the options.
  static SequenceOptions still();

  // From begin() to the logits after the prompt. The try_ forms pass errors on, the others end the
  // test.
  Result<Asked> try_start(const Text& text, const TurnOptions& options = {});
  Asked start(const Text& text, const TurnOptions& options = {});
  // Computes what is not yet.
  Result<void> try_compute(Asked& asked);
  // Says these words, one a batch.
  Result<void> try_say(Asked& asked, const Text& more);
  void say(Asked& asked, const Text& more) { ok(try_say(asked, more)); }
  void finish(Asked& asked) { ok(asked.turn.finish()); }
  // A whole request, which says three words.
  Asked ask(const Text& text, const TurnOptions& options = {});
  // A branch of a request that continues too.
  Asked fork(Asked& asked, const Text& more, const TurnOptions& options = {});

  // The largest difference between the request's logits and the judge's, in the same units; 1e9 if
  // one is not a number.
  double apart(const Asked& asked);
  void expect_exact(const Asked& asked);
  void expect_near(const Asked& asked);

  std::unique_ptr<LlamaModel> model;
  FaultySequences engine;
  SequenceCache cache;
  Scope scope;
  uint32_t chunk_tokens = 20;  // No batch is larger.
  double worst = 0;            // Over everything judged.

 private:
  struct Known {
    std::vector<Token> tokens;
    std::vector<uint32_t> ends;
  };
  // How the first n words of the text came to be.
  void recall(Asked& asked, uint32_t n) const;
  Result<void> decode(Asked& asked, uint32_t end);

  std::unique_ptr<LlamaModel> judge_;
  double near_;
  std::vector<Known> known_;
};

}  // namespace stemma::test
