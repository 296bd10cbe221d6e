// A schedule: random operations on one SequenceCache over one fake engine, each followed by every
// check there is (judge.h). The model is in live.h: the words that each turn was given. The engine
// knows which contents belong to which words, so nothing wrong is ever served without being seen.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sequences/author.h"
#include "sequences/dice.h"
#include "sequences/engine.h"
#include "sequences/judge.h"
#include "sequences/live.h"
#include "sequences/situation.h"
#include "sequences/tally.h"

namespace stemma::schedules {

// The result of a schedule.
struct Finding {
  std::string wrong;    // "" if all was right.
  std::string log;      // What it was about, and its last steps.
  uint64_t digest = 0;  // Of every step and of what was decided in it.
  Tally tally;
};

using EngineFactory = std::function<std::unique_ptr<ScheduleEngine>(const FakeSequences::Options&)>;

// What the cache is not told, to show that the checks notice the consequences.
struct Hidden {
  bool scopes = false;
  bool media = false;  // The contents of items.
};

class Schedule {
 public:
  explicit Schedule(const Situation& situation, const EngineFactory& factory = nullptr,
                    const Hidden& hidden = {});
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  Finding run();

 private:
  // ---- Operations on the cache: schedule_cache.cc -----------------------------------------------

  void begin();
  void judge_refusal(const Request& request, const TurnOptions& options, Error error);
  void drain();
  void warm();
  void lookup();
  void admit();
  void end_session();
  void drop_scope();
  void drop_saved();
  void forget_context();
  void truncate();
  void bad_begin();
  TurnOptions choose_options(const Request& request);
  // Its ranges are ranges_: valid until the next one.
  Retain choose_retain();
  std::vector<SequenceContent> contents();
  // Turns, and a caller that asks for `more` beside them, may have been promised more than there
  // is.
  void promised(uint32_t more = 0);
  // A session that was ended is over as soon as no turn of it is under way.
  void judge_ended(const std::string& session);
  // `stale`: turns whose sequence was taken away count.
  bool under_way(const std::string& session, bool stale) const;
  static Result<void> compute_for_warm(void* user, SequenceId sequence,
                                       std::span<const Token> tokens, uint32_t begin);

  // ---- Operations on a turn: schedule_turn.cc ---------------------------------------------------

  void advance(size_t i);
  // `just_begun`: nothing has happened since the plan was made.
  void execute(Live& live, bool just_begun);
  void compute(size_t i);
  void after_failed_pass(size_t i);
  void extend(Live& live);
  void reserve(Live& live, uint32_t tokens);
  void rewind(Live& live);
  void fork(Live& live);
  void shift(Live& live);
  void attach_logits(Live& live);
  void misuse(Live& live);
  void call_stale(Live& live);
  enum class End : uint8_t { finish, abandon, destroy };
  void end(size_t i, End how);
  // After a call that failed and took the sequence's contents with it: the turn can only end.
  void lost(Live& live, const char* call);
  void judge_contents(const Live& live, const char* after);
  void acts(const Live& live) { actors_.push_back(to_index(live.turn.sequence())); }

  // ---- The frame: schedule.cc -------------------------------------------------------------------

  void step();
  void perform(Operation operation);
  std::optional<size_t> find_live(const std::function<bool(const Live&)>& fits);
  View view() const;
  void judge_all(const View& before);
  void judge_books(const SequenceStats& stats);
  void finish_all();
  void take_every_sequence();
  // Notes what is wrong; the first note counts.
  void wrong(const std::string& what);
  void expect(bool holds, const std::string& otherwise) {
    if (!holds) wrong(otherwise);
  }
  void expect_code(const Result<void>& result, Errc code, const char* call);
  void say(const std::string& more);
  const Scope& scope(uint32_t number) const { return scopes_[hidden_.scopes ? 0 : number]; }
  // The prompt as the cache is told of it. Valid until the next one.
  Prompt shown(const Text& text) {
    shown_media_ = text.media;
    for (MediaItem& item : shown_media_) {
      if (hidden_.media) item.digest = {};
    }
    return {text.tokens, shown_media_};
  }
  bool faultless() const { return situation_.faults == Faults::none; }
  bool may_fail(test::Call call) const;
  void count(const char* event, uint64_t times = 1) { tally_.events[event] += times; }

  const Situation situation_;
  const Hidden hidden_;
  Dice dice_;
  std::unique_ptr<ScheduleEngine> engine_;
  std::vector<Scope> scopes_;
  Author author_;
  std::optional<SequenceCache> cache_;
  std::vector<MediaItem> shown_media_;
  std::vector<PriorityRange> ranges_;
  std::set<std::string> ended_;  // Sessions, since their last turn began.
  std::vector<Live> live_;
  std::vector<uint32_t> actors_;  // Sequences that the operation may change.
  uint64_t empty_bytes_ = 0;      // What an empty cache says it has saved.
  bool books_differ_ = false;     // A sequence was left holding more than the cache was told.
  bool crowded_ = false;          // More was promised than there is: calls may fail for it.
  uint32_t next_number_ = 1;

  std::string wrong_;
  std::deque<std::string> lines_;
  std::string line_;
  uint64_t digest_ = 0;
  bool trace_ = false;
  Tally tally_;
};

inline Finding run_schedule(const Situation& situation, const EngineFactory& factory = nullptr,
                            const Hidden& hidden = {}) {
  return Schedule(situation, factory, hidden).run();
}

}  // namespace stemma::schedules
