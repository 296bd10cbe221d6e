// A caller that checks held() after every call never gets wrong contents, whatever the engine and
// its faults are: SequenceEngine tells enough.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/cache_fixture.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using Bytes = std::vector<uint8_t>;
using Options = FakeSequences::Options;

constexpr Options kWindow{.rewind = Rewind::window, .checkpoints = true};

// Random calls over a few texts with common prefixes. After every call it asks held(), and takes
// the sequence as empty, after clearing it, unless all is as it should be. Or it is naive, and
// believes what calls report.
class Walk {
 public:
  Walk(const Options& options, FaultSchedule faults, uint64_t seed, bool naive = false)
      : engine(options), naive_(naive), random_(seed), mirrors_(options.sequences) {
    engine.faults = std::move(faults);
    texts_ = {tokens(90, 1), tokens(40, 1) + tokens(50, 2), tokens(10, 1) + tokens(80, 3)};
  }

  void run(uint32_t steps) {
    for (uint32_t i = 0; i < steps && wrong.empty(); ++i) step();
    for (uint32_t s = 0; s < mirrors_.size() && wrong.empty(); ++s) forget(SequenceId{s});
    if (wrong.empty() && engine.used_tokens() != 0) wrong = "positions were left behind";
  }

  FakeSequences engine;
  std::string wrong;
  std::set<std::string> adopted;  // The kinds of steps that led to contents that were used.
  uint32_t given_up = 0;

 private:
  struct Saved {
    Part part;
    Range range;
    Text text;  // [0, range.end).
    Bytes bytes;
  };

  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  Text& mirror(SequenceId sequence) { return mirrors_[to_index(sequence)]; }
  static bool begins(const Text& text, const Text& head) {
    return head.size() <= text.size() && text.first(head.size()).tokens == head.tokens;
  }

  void step() {
    const SequenceId sequence{dice(static_cast<uint32_t>(mirrors_.size()))};
    switch (dice(7)) {
      case 0:
      case 1: return compute(sequence);
      case 2: return trim(sequence);
      case 3: return copy(sequence);
      case 4: return save(sequence);
      case 5: return restore(sequence);
      default: return go_back(sequence);
    }
  }

  void compute(SequenceId sequence) {
    Text words = tokens(1 + dice(20), 10 + dice(3));
    for (const Text& text : texts_) {
      const uint32_t begin = mirror(sequence).size();
      if (dice(3) == 0 || begin == text.size() || !begins(text, mirror(sequence))) continue;
      const uint32_t end = begin + 1 + dice(text.size() - begin);
      words = of({text.tokens.begin() + begin, text.tokens.begin() + end});
    }
    const Text wanted = mirror(sequence) + words;
    const bool done = engine.compute(sequence, words.tokens).has_value();
    settle(sequence, wanted, done, "compute");
  }
  void trim(SequenceId sequence) {
    const Text wanted = mirror(sequence).first(dice(mirror(sequence).size() + 1));
    const bool done = engine.trim(sequence, wanted.size()).has_value();
    settle(sequence, wanted, done, "trim");
  }
  void copy(SequenceId to) {
    const SequenceId from{dice(static_cast<uint32_t>(mirrors_.size()))};
    if (from == to || mirror(from).size() == 0) return;
    const uint32_t size = mirror(from).size();
    const Text wanted = mirror(from).first(dice(2) == 0 ? size : 1 + dice(size));
    if (!forget(to)) return;
    bool done = engine.copy(from, to, {0, wanted.size()}).has_value();
    std::string kind = "copy";
    if (const Saved* checkpoint = find(wanted); done && checkpoint != nullptr && dice(2) == 0) {
      done = load(to, *checkpoint, checkpoint->range);
      kind = "copy and checkpoint";
    }
    settle(to, wanted, done, kind);
  }
  void save(SequenceId sequence) {
    const uint32_t size = mirror(sequence).size();
    if (size == 0) return;
    const auto part = static_cast<Part>(dice(3));
    Range range{0, size};
    if (part == Part::segment && dice(2) == 0) range.begin = dice(size);
    if (part == Part::segment && dice(2) == 0) {
      range.end = range.begin + 1 + dice(size - range.begin);
    }
    if (part == Part::checkpoint && dice(2) == 0) range.end = 1 + dice(size);
    const Result<uint64_t> bytes = engine.size(sequence, part, range);
    Saved saved{part, range, mirror(sequence).first(range.end), {}};
    if (bytes) saved.bytes.resize(*bytes);
    if (bytes && engine.save(sequence, part, range, saved.bytes)) {
      adopted.insert("save");
      if (saved_.size() == 40) saved_.erase(saved_.begin());
      saved_.push_back(std::move(saved));
    }
    settle(sequence, Text(mirror(sequence)), true, "asked");
  }
  // A state, or segments in a row and a checkpoint where there is one.
  void restore(SequenceId sequence) {
    if (saved_.empty() || !forget(sequence)) return;
    const Saved& first = saved_[dice(static_cast<uint32_t>(saved_.size()))];
    if (first.part == Part::checkpoint || first.range.begin != 0) return;
    Text wanted = first.text;
    bool done = load(sequence, first, first.range);
    std::string kind = first.part == Part::state ? "state" : "segments";
    for (const Saved& next : saved_) {
      if (next.part != Part::segment || next.range.begin > wanted.size() ||
          next.range.end <= wanted.size() || !begins(next.text, wanted) || dice(2) == 0) {
        continue;
      }
      done = done && load(sequence, next, {wanted.size(), next.range.end});
      wanted = next.text;
      if (kind == "state") kind = "state and segments";
    }
    if (const Saved* checkpoint = find(wanted); checkpoint != nullptr && dice(4) != 0) {
      done = done && load(sequence, *checkpoint, checkpoint->range);
      kind += " and checkpoint";
    }
    settle(sequence, wanted, done, kind);
  }
  void go_back(SequenceId sequence) {
    for (const Saved& saved : saved_) {
      if (saved.part != Part::checkpoint || !begins(mirror(sequence), saved.text)) continue;
      return settle(sequence, saved.text, load(sequence, saved, saved.range), "checkpoint");
    }
  }

  const Saved* find(const Text& text) const {
    for (const Saved& saved : saved_) {
      if (saved.part == Part::checkpoint && saved.text.tokens == text.tokens) return &saved;
    }
    return nullptr;
  }
  bool load(SequenceId sequence, const Saved& saved, Range wanted) {
    return engine.load(sequence, saved.part, saved.range, wanted, saved.bytes).has_value();
  }

  bool forget(SequenceId sequence) {
    mirror(sequence) = {};
    for (int i = 0; i < 100; ++i) {
      const bool done = engine.clear(sequence).has_value();
      if (done && (naive_ || engine.held(sequence) == Held{})) return true;
    }
    wrong = "clear never works";
    return false;
  }
  void settle(SequenceId sequence, const Text& wanted, bool done, const std::string& kind) {
    const Held held = engine.held(sequence);
    if (done && (naive_ || (held.whole && held.end == wanted.size() &&
                            can_resume(engine.traits(), held, wanted.size())))) {
      mirror(sequence) = wanted;
      adopted.insert(kind);
    } else {
      ++given_up;
      forget(sequence);
    }
    for (uint32_t s = 0; s < mirrors_.size() && wrong.empty(); ++s) {
      wrong = engine.right(SequenceId{s}, mirrors_[s].tokens);
      if (!wrong.empty()) wrong = "sequence " + std::to_string(s) + " after " + kind + ": " + wrong;
    }
  }

  const bool naive_;
  std::mt19937_64 random_;
  std::vector<Text> texts_;
  std::vector<Text> mirrors_;
  std::vector<Saved> saved_;
};

std::string describe(const Options& o) {
  return "rewind " + std::to_string(static_cast<int>(o.rewind)) + ", fork " +
         std::to_string(static_cast<int>(o.fork)) + (o.unified ? ", unified" : "") +
         (o.segments ? ", segments" : "") + (o.checkpoints ? ", checkpoints" : "") +
         (o.full_attention ? "" : ", recurrent only") + (o.shares_window ? ", shares window" : "");
}

std::vector<Options> every_mix() {
  std::vector<Options> mixes;
  for (uint32_t bits = 0; bits < 1 << 9; ++bits) {
    Options options;
    options.context_tokens = 250;
    options.rewind = static_cast<Rewind>(bits & 3);
    options.fork = static_cast<Fork>(bits >> 2 & 3);
    options.unified = (bits >> 4 & 1) != 0;
    options.segments = (bits >> 5 & 1) != 0;
    options.checkpoints = (bits >> 6 & 1) != 0;
    options.full_attention = (bits >> 7 & 1) != 0;
    options.shares_window = (bits >> 8 & 1) != 0;
    options.rewind_tokens = options.rewind == Rewind::bounded ? 4 : 16;
    if (options.shares_window && options.rewind != Rewind::window) continue;
    if (FakeSequences::possible(options)) mixes.push_back(options);
  }
  return mixes;
}

TEST(SequenceWalk, WhoAsksHeldIsNeverServedWrongContents) {
  constexpr Call kAll[] = {Call::clear, Call::trim, Call::copy,   Call::size,
                           Call::save,  Call::load, Call::compute};
  constexpr Call kHeld[] = {Call::held};
  std::set<std::string> adopted;
  std::set<std::string> happened;
  uint64_t seed = 1;
  for (const Options& options : every_mix()) {
    for (const FaultSchedule& faults : {FaultSchedule(), FaultSchedule::random(seed, 150, kAll),
                                        FaultSchedule::random(seed, 150, kHeld)}) {
      Walk walk(options, faults, ++seed);
      walk.run(400);
      ASSERT_EQ(walk.wrong, "") << describe(options) << ", seed " << seed;
      adopted.insert(walk.adopted.begin(), walk.adopted.end());
      for (const PlannedFault& fault : walk.engine.faults.happened()) {
        happened.insert(to_string(fault.call) + " " + to_string(fault.fault));
      }
    }
  }
  EXPECT_EQ(adopted, (std::set<std::string>{
                         "asked", "checkpoint", "compute", "copy", "copy and checkpoint", "save",
                         "segments", "segments and checkpoint", "state", "state and checkpoint",
                         "state and segments", "state and segments and checkpoint", "trim"}));
  EXPECT_EQ(happened.size(), 6 * (kFaults - 1) + 3 + 2) << "every way to go wrong has occurred";
}

TEST(SequenceWalk, WhoBelievesInSuccessIsServedWrongContents) {
  for (const Call call : {Call::clear, Call::trim, Call::copy, Call::save, Call::load}) {
    const Call calls[] = {call};
    Walk walk(Options{}, FaultSchedule::random(1, 300, calls), 1, true);
    walk.run(1000);
    EXPECT_NE(walk.wrong, "") << to_string(call);
  }
  Walk window(kWindow, FaultSchedule(), 1, true);
  window.run(1000);
  EXPECT_NE(window.wrong, "") << "its trim needs no fault to lie";
}

TEST(SequenceWalk, WhatHappenedCanBeReplayed) {
  constexpr Call kAll[] = {Call::held, Call::clear, Call::trim, Call::copy,
                           Call::size, Call::save,  Call::load, Call::compute};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Walk first(kWindow, FaultSchedule::random(seed, 100, kAll), seed);
    first.run(300);
    EXPECT_FALSE(first.engine.faults.happened().empty());
    Walk again(kWindow, FaultSchedule(first.engine.faults.happened()), seed);
    again.run(300);
    EXPECT_EQ(again.engine.faults.happened(), first.engine.faults.happened());
    EXPECT_EQ(again.engine.elapsed_ns(), first.engine.elapsed_ns());
    EXPECT_EQ(again.given_up, first.given_up);
    EXPECT_EQ(again.wrong, first.wrong);
  }
}

}  // namespace
}  // namespace stemma::test
