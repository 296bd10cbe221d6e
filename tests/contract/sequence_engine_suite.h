// What a SequenceCache expects of every engine with opaque sequences. An engine joins by an
// INSTANTIATE_TEST_SUITE_P in a program that is built with sequence_engine_suite.cc; it needs at
// least 3 sequences, room for 400 tokens, and a window, if it has one, of at most 16.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "stemma/sequence_engine.h"
#include "support/cache_fixture.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma::test {

using Bytes = std::vector<uint8_t>;

// An engine plus what else the suite needs: computing, and checking what was computed.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual SequenceEngine& engine() = 0;
  virtual Result<void> compute(SequenceId sequence, std::span<const Token> words) = 0;
  // Returns "" if decoding after `words` gives the same as if all of them had just been computed.
  virtual std::string right(SequenceId sequence, std::span<const Token> words) = 0;
  // Makes the next call of this kind fail. Returns false if this rig cannot do that.
  virtual bool fail_next(Call /*call*/, Fault /*fault*/) { return false; }
  // Checking takes milliseconds: the suite then checks only depths around 0, the end, and the
  // window's edges.
  virtual bool slow() const { return false; }
};

struct EngineCase {
  std::string name;
  std::function<std::unique_ptr<Rig>()> make;
};

inline void PrintTo(const EngineCase& engine, std::ostream* out) { *out << engine.name; }

inline constexpr SequenceId kA{0}, kB{1}, kC{2};

class SequenceEngineContract : public ::testing::TestWithParam<EngineCase> {
 protected:
  SequenceEngineContract()
      : rig(GetParam().make()), engine(rig->engine()), traits(engine.traits()) {}

  bool saves() const { return traits.fork != Fork::none; }
  // Whether segments or a shorter copy must be completed by a checkpoint.
  bool needs_checkpoint() const { return traits.rewind != Rewind::any; }
  bool segments_are_enough() const {
    return traits.segments && (traits.checkpoints || !needs_checkpoint());
  }

  // Depths of a text of 60 worth trying, up to `last`.
  std::vector<uint32_t> depths(uint32_t first, uint32_t last) const {
    std::vector<uint32_t> chosen;
    for (uint32_t n = first; n <= last; ++n) {
      const uint32_t edge = 60 - std::min(60U, traits.rewind_tokens);
      const bool close = n <= 2 || n >= 58 || n + 1 == edge || n == edge || n == edge + 1;
      if (!rig->slow() || close || n % 16 == 0 || n == traits.rewind_tokens) chosen.push_back(n);
    }
    return chosen;
  }

  void compute(SequenceId sequence, const Text& words) { ok(rig->compute(sequence, words.tokens)); }
  // Begins a sequence anew and saves checkpoints on the way, if the engine has any.
  void compute(SequenceId sequence, const Text& words, const std::vector<uint32_t>& stops) {
    uint32_t at = 0;
    for (const uint32_t stop : stops) {
      ok(rig->compute(sequence, std::span(words.tokens).subspan(at, stop - at)));
      at = stop;
      if (traits.checkpoints) {
        checkpoints.push_back({stop, save(sequence, Part::checkpoint, {0, stop})});
      }
    }
  }
  const Bytes& checkpoint(uint32_t n) const {
    return std::ranges::find(checkpoints, n, &Checkpoint::depth)->bytes;
  }
  Bytes save(SequenceId sequence, Part part, Range range) {
    const uint64_t size = ok(engine.size(sequence, part, range));
    Bytes bytes(size + 3);
    EXPECT_LE(ok(engine.save(sequence, part, range, bytes)), size);
    bytes.resize(size);
    return bytes;
  }
  void load(SequenceId sequence, Part part, Range range, const Bytes& bytes) {
    ok(engine.load(sequence, part, range, range, bytes));
  }
  void complete(SequenceId sequence, uint32_t n) {
    if (needs_checkpoint()) load(sequence, Part::checkpoint, {0, n}, checkpoint(n));
  }

  void expect_right(SequenceId sequence, const Text& words) {
    const Held held = engine.held(sequence);
    EXPECT_EQ(held.end, words.size());
    EXPECT_TRUE(held.whole);
    EXPECT_TRUE(can_resume(traits, held, words.size())) << held.begin << " to " << held.end;
    EXPECT_EQ(rig->right(sequence, words.tokens), "");
  }
  // Correct now, and still correct after going on.
  void expect_goes_on(SequenceId sequence, const Text& words, uint32_t tail_seed) {
    expect_right(sequence, words);
    const Text tail = tokens(40, tail_seed);
    compute(sequence, tail);
    expect_right(sequence, words + tail);
  }

  struct Checkpoint {
    uint32_t depth;
    Bytes bytes;
  };
  std::unique_ptr<Rig> rig;
  SequenceEngine& engine;
  EngineTraits traits;
  std::vector<Checkpoint> checkpoints;
  const Text text = tokens(60);
};

}  // namespace stemma::test
