// The parts of a SequenceCache one by one, over an engine whose contents can be judged.
//
// A PartsRig has the books and every part, assembled as in Core, and holds the lock as callers of
// the parts do. Tests bring sequences and turns into the state they need, and call one part.
//
//   PartsRig rig;
//   rig.put(0, tokens(100));             // sequence 0 is idle, and holds these words
//   rig.books.queue.add(0, 100);
//   EXPECT_EQ(rig.capturer.capture(0).fate, CaptureFate::saved);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sequence/admission.h"
#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/drainer.h"
#include "sequence/finder.h"
#include "sequence/forgetter.h"
#include "sequence/idle_dropper.h"
#include "sequence/inspector.h"
#include "sequence/notifier.h"
#include "sequence/part_intake.h"
#include "sequence/plan_executor.h"
#include "sequence/restorer.h"
#include "sequence/session_closer.h"
#include "sequence/turn_end.h"
#include "sequence/turn_planner.h"
#include "sequence/turn_progress.h"
#include "support/cache_fixture.h"
#include "support/engine_kinds.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma::test {

using sequence::Base;
using sequence::Books;
using sequence::Captured;
using sequence::Excluded;
using sequence::Found;
using sequence::Holding;
using sequence::kNoSequence;
using sequence::Plan;
using sequence::StateLease;
using sequence::TurnPhase;
using sequence::TurnRecord;

// A listener that is told everything and takes all bytes while it `wants` them.
class PartsListener final : public SavedListener {
 public:
  struct Part {
    EntryKind kind;
    Range range;
    std::vector<uint8_t> bytes;
    ContentKey chain;
    SeenAgain seen = SeenAgain::used;
    std::vector<uint32_t> words = {};
  };
  void saved(const Scope& /*scope*/, const Prompt& prompt, const SavedPart& part,
             const ContentKey& chain, const Retain& /*retain*/) noexcept override {
    prompts.push_back({prompt.tokens.begin(), prompt.tokens.end()});
    heard.push_back({part.kind, part.range, {part.bytes.begin(), part.bytes.end()}, chain});
  }
  uint32_t wants(EntryKind /*kind*/, const ContentKey& /*chain*/,
                 SeenAgain seen) noexcept override {
    last_ = seen;
    return want ? 1 : 0;
  }
  bool take(const KeptPart& part, uint32_t /*wanted*/) noexcept override {
    taken.push_back({part.kind,
                     part.range,
                     {part.bytes.begin(), part.bytes.end()},
                     part.chain,
                     last_,
                     {part.words.begin(), part.words.end()}});
    return keep;
  }
  bool keeps_words() const noexcept override { return words; }

  bool want = true;
  bool keep = true;
  bool words = false;
  std::vector<std::vector<Token>> prompts;
  std::vector<Part> heard;
  std::vector<Part> taken;

 private:
  SeenAgain last_ = SeenAgain::used;
};

// 4 MiB for saved entries.
inline SequenceOptions parts_options() {
  SequenceOptions options;
  options.saved_bytes = 4U << 20U;
  return options;
}

class PartsRig {
 public:
  explicit PartsRig(const EngineOptions& engine_options = full_engine(),
                    const SequenceOptions& options = parts_options())
      : engine(engine_options), clock(engine), books(engine, with_clock(options)) {
    ok(books.set_up());
  }
  PartsRig(const PartsRig&) = delete;
  PartsRig& operator=(const PartsRig&) = delete;

  // ---- Sequences --------------------------------------------------------------------------------

  // The sequence holds these words, and is idle.
  void put(uint32_t s, const Text& text) {
    const SequenceId id{s};
    sequence::SequenceRecord& record = books.at(s);
    ok(engine.compute(id, text.tokens));
    books.room.prepare(id, id);
    books.room.set_length(id, text.size());
    record.scope = scope;
    ok(books.lexicon.read(text, record.text));
    ok(books.live.append(id, scope, record.text.all()));
    (void)books.ask(s);
    books.set_state(s, SequenceState::idle);
  }
  // Saves all that it holds.
  void save(uint32_t s) {
    books.queue.add(s, books.known(s));
    EXPECT_EQ(capturer.capture(s).fate, CaptureFate::saved);
  }
  // Saves these words, so that no sequence holds them.
  void put_away(const Text& text) {
    put(3, text);
    save(3);
    clearer.release(3);
  }
  SequenceState state(uint32_t s) const { return books.at(s).state; }
  // Returns "" if the sequence holds exactly the contents of these words.
  std::string right(uint32_t s, const Text& text) const {
    return engine.right(SequenceId{s}, text.tokens);
  }
  uint64_t fate(CaptureFate fate) const { return books.stats.captures[static_cast<size_t>(fate)]; }
  uint64_t calls(Call call) const { return engine.counts().of(call); }
  // How much of the text is saved in segments.
  uint32_t saved(const Text& text) const { return intake.saved_tokens(scope, text); }

  // ---- Turns, which live as long as the rig -----------------------------------------------------

  // A turn that was read but has no plan and no sequence yet.
  TurnRecord& read(const Text& text) {
    TurnRecord& turn = *turns_.emplace_back(std::make_unique<TurnRecord>());
    ok(books.lexicon.read(text, turn.text));
    turn.scope = scope;
    turn.prompt_tokens = text.size();
    turn.promised_end = text.size();
    turn.full_limit = turn.limit = text.size() - 1;
    turn.terminal = text.size() - 1;
    return turn;
  }
  TurnRecord& begin(const Text& text, const TurnOptions& options = {}) {
    return *turns_.emplace_back(ok(admission.begin(scope, text, options, false)));
  }
  // Begins, and carries the plan out.
  TurnRecord& execute(const Text& text, const TurnOptions& options = {}) {
    TurnRecord& turn = begin(text, options);
    ok(executor.execute(turn));
    return turn;
  }
  // Computes up to n, or all that is known.
  void compute(TurnRecord& turn, uint32_t n = kNoSequence) {
    const auto words = std::span(turn.text.tokens).first(std::min(n, turn.text.length()));
    ok(engine.compute(SequenceId{turn.sequence}, words.subspan(turn.computed)));
    ok(progress.computed(turn, static_cast<uint32_t>(words.size()), 0));
  }
  // Begins, carries the plan out, and computes the rest of the prompt.
  TurnRecord& run(const Text& text, const TurnOptions& options = {}) {
    TurnRecord& turn = execute(text, options);
    compute(turn);
    return turn;
  }
  // A whole request. Returns the sequence it had.
  uint32_t chat(const Text& text, const TurnOptions& options = {}) {
    TurnRecord& turn = run(text, options);
    const uint32_t s = turn.sequence;
    ok(end.finish(turn, nullptr));
    return s;
  }
  SequenceReport look(const Text& text, const TurnOptions& options = {}) {
    return ok(admission.lookup(scope, text, options));
  }

  FakeSequences engine;
  EngineClock clock;
  Scope scope = scope_of({.model = "a model"});
  Books books;
  base::MutexLock lock{books.mutex};
  sequence::Notifier notifier{books};
  sequence::Capturer capturer{books, notifier};
  sequence::Clearer clearer{books, capturer};
  sequence::Finder finder{books};
  sequence::TurnPlanner planner{books, finder};
  sequence::Admission admission{books, finder, planner};
  sequence::Restorer restorer{books, notifier, capturer};
  sequence::IdleDropper idle{books, finder, capturer, clearer};
  sequence::PlanExecutor executor{books, capturer, clearer, planner, restorer, idle};
  sequence::Relocator relocator{books, clearer};
  sequence::Drainer drainer{books, notifier, capturer, clearer, idle, relocator};
  sequence::SessionCloser sessions{books};
  sequence::TurnProgress progress{books, notifier, capturer, clearer, restorer};
  sequence::TurnEnd end{books, capturer, clearer, sessions};
  sequence::Forgetter forgetter{books, capturer, clearer, sessions};
  sequence::PartIntake intake{books, notifier};
  sequence::Inspector inspector{books, capturer};

 private:
  SequenceOptions with_clock(SequenceOptions options) const {
    options.clock = &clock;
    return options;
  }

  std::vector<std::unique_ptr<TurnRecord>> turns_;
};

}  // namespace stemma::test
