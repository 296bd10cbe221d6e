// One story that uses every engine call, repeated with a different call failing in a different way
// each time. It must always end well: nothing wrong is ever served, no other request is disturbed,
// and afterwards everything works. (The rig judges after every step.)
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

constexpr Call kCallsOfTheCache[] = {Call::clear, Call::trim, Call::copy, Call::size,
                                     Call::save,  Call::load, Call::shift};

class SweepStory {
 public:
  explicit SweepStory(EngineOptions engine) : rig(changed(engine), small()) {}

  void tell() {
    const Text system = tokens(40, 1);
    const Text a = system + tokens(30, 2);
    const Text b = system + tokens(30, 3);
    ask("a", a);
    ask("b", b);
    rig.drain();
    ask("a", a + tokens(9, 4));
    ask("c", system + tokens(35, 5));
    branch_and_shift(system + tokens(20, 6));
    ask("b", b + tokens(9, 7));
    give_up(a + tokens(20, 8));
    rig.drain();
    ask("a", a + tokens(12, 9));
    ask("a", a.first(60) + tokens(12, 10));
  }
  // Every sequence at once, without further faults.
  void expect_all_is_well() {
    rig.engine.faults = FaultSchedule();
    std::vector<Request> requests;
    for (uint32_t s = 0; s < 3; ++s) requests.push_back(rig.begin(tokens(30, 20 + s)));
    for (Request& request : requests) rig.run(request);
    EXPECT_EQ(rig.cache.stats().broken_sequences, 0U);
    for (Request& request : requests) rig.finish(request);
    rig.take_all_sequences();
    EXPECT_EQ(rig.engine.used_tokens(), 0U) << "positions were left behind";
    EXPECT_EQ(rig.cache.stats().used_tokens, 0U);
  }

  SequenceRig rig;

 private:
  static EngineOptions changed(EngineOptions engine) {
    engine.sequences = 3;
    engine.context_tokens = 300;
    engine.shift = true;
    return engine;
  }
  static SequenceOptions small() {
    SequenceOptions options = small_cache();
    options.saved_bytes = 300'000;
    options.segment_tokens = 16;
    return options;
  }

  void end(Request& request) {
    if (request.turn.active()) static_cast<void>(request.turn.abandon());
    rig.check("the end of a turn that failed");
  }
  bool start(Request& request) { return rig.try_execute(request) && rig.try_compute(request); }

  void ask(std::string_view session, const Text& text) {
    const uint32_t ends[] = {40};
    Result<Request> request = rig.try_begin(text, {.session = session, .message_ends = ends});
    if (!request) return;
    if (!start(*request) || !rig.try_finish(*request)) end(*request);
  }
  void branch_and_shift(const Text& text) {
    Result<Request> request = rig.try_begin(text, {.session = "d"});
    if (!request) return;
    if (!start(*request)) return end(*request);
    if (Result<Request> branch = rig.try_fork(*request)) {
      if (!rig.try_compute(*branch) || !rig.try_finish(*branch)) end(*branch);
    }
    ok(request->turn.extend(tokens(6, 11).tokens));
    request->text = request->text + tokens(6, 11);
    if (!rig.try_compute(*request)) return end(*request);
    static_cast<void>(rig.try_rewind(*request, request->turn.length() - 3));
    if (request->turn.computed() == 0) return end(*request);
    static_cast<void>(rig.try_shift(*request, 8, 10));
    if (request->turn.computed() == 0 || !rig.try_finish(*request)) end(*request);
  }
  void give_up(const Text& text) {
    Result<Request> request = rig.try_begin(text, {.session = "a"});
    if (!request) return;
    if (rig.try_execute(*request)) static_cast<void>(rig.try_compute(*request, 75));
    end(*request);
  }
};

class SequenceFaultSweep : public ::testing::TestWithParam<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Every, SequenceFaultSweep, ::testing::ValuesIn(every_engine()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(SequenceFaultSweep, AnyOneCallMayFailInAnyWay) {
  FakeSequences::Counts counts;
  {
    SweepStory story(GetParam().options);
    story.tell();
    counts = story.rig.engine.counts();
    story.expect_all_is_well();
  }
  for (uint32_t c = 0; c < kCalls; ++c) {
    const auto call = static_cast<Call>(c);
    if (call == Call::compute) continue;
    for (uint64_t nth = 0; nth < counts.of(call); ++nth) {
      for (uint32_t f = 1; f < kFaults; ++f) {
        const auto fault = static_cast<Fault>(f);
        if (!possible(call, fault)) continue;
        SCOPED_TRACE(to_string(call) + " " + std::to_string(nth) + ", " + to_string(fault));
        SweepStory story(GetParam().options);
        story.rig.engine.faults = FaultSchedule({{call, nth, fault}});
        story.tell();
        story.expect_all_is_well();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(SequenceFaultSweep, ManyCallsMayFail) {
  constexpr Call kHeld[] = {Call::held};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const bool lies : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (lies ? ", held() lies" : ""));
      SweepStory story(GetParam().options);
      story.rig.engine.faults = lies ? FaultSchedule::random(seed, 100, kHeld)
                                     : FaultSchedule::random(seed, 150, kCallsOfTheCache);
      for (int i = 0; i < 3; ++i) story.tell();
      story.expect_all_is_well();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stemma::test
