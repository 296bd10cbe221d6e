#include "sequence/admission.h"

#include <gtest/gtest.h>

#include <array>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

uint64_t refused_in(const PartsRig& rig) {
  return rig.books.stats.outcomes[static_cast<size_t>(Outcome::refused)];
}

Errc begin_code(PartsRig& rig, const Text& text, const TurnOptions& options = {}) {
  const auto turn = rig.admission.begin(rig.scope, text, options, false);
  EXPECT_FALSE(turn.has_value()) << "a turn was left behind";
  return code(turn);
}

TEST(Admission, RequestLeasesTheSequenceOfItsPlan) {
  PartsRig rig;
  rig.put(2, tokens(100));
  TurnRecord& turn = rig.begin(tokens(100) + tokens(9, 2), {.reserve_tokens = 30});
  EXPECT_EQ(turn.sequence, 2U);
  EXPECT_EQ(rig.state(2), SequenceState::leased);
  EXPECT_EQ(rig.books.at(2).turn, &turn);
  EXPECT_EQ(turn.was, SequenceState::idle);
  EXPECT_EQ(turn.promised_end, 139U);
  EXPECT_EQ(turn.epoch, rig.books.epoch) << "its plan is as new as the books";
  rig.inspector.check_invariants();
}

TEST(Admission, LastUnitIsEvaluatedUnlessAllMayBeReused) {
  PartsRig rig;
  rig.put(2, tokens(100));
  EXPECT_EQ(rig.look(tokens(100)).reused_tokens, 99U);
  EXPECT_EQ(rig.look(tokens(100), {.evaluate_at_least = 5}).reused_tokens, 95U);
  const auto whole = ok(rig.admission.begin(rig.scope, tokens(100), {}, true));
  EXPECT_EQ(whole->plan.available, 100U);
  ok(rig.end.abandon(*whole));
}

TEST(Admission, NobodyIsAdmittedWhenEverySequenceIsLeased) {
  PartsRig rig;
  for (uint32_t i = 0; i < 4; ++i) rig.begin(tokens(10, i + 1));
  EXPECT_FALSE(rig.admission.can_admit({}));
  EXPECT_EQ(begin_code(rig, tokens(10, 9)), Errc::busy);
  EXPECT_EQ(refused_in(rig), 1U);
}

TEST(Admission, SessionThatIsUnderWayIsBusyUnlessItSaysOtherwise) {
  PartsRig rig;
  rig.begin(tokens(10), {.session = "a"});
  EXPECT_FALSE(rig.admission.can_admit("a"));
  EXPECT_TRUE(rig.admission.can_admit("b"));
  EXPECT_EQ(begin_code(rig, tokens(10, 2), {.session = "a"}), Errc::busy);
  rig.begin(tokens(10, 2), {.session = "a", .exclusive = false});
  EXPECT_EQ(rig.books.sessions[rig.books.sessions.find("a")].in_flight, 2U);
}

TEST(Admission, BadArgumentsAreRefusedAndNotCounted) {
  PartsRig rig;
  const std::array<uint32_t, 2> backwards{5, 3};
  const std::array<uint32_t, 1> beyond{11};
  EXPECT_EQ(begin_code(rig, tokens(10), {.message_ends = backwards}), Errc::invalid_argument);
  EXPECT_EQ(begin_code(rig, tokens(10), {.message_ends = beyond}), Errc::invalid_argument);
  EXPECT_EQ(begin_code(rig, tokens(10), {.reuse = Reuse{7}}), Errc::invalid_argument);
  EXPECT_EQ(refused_in(rig), 0U);
}

TEST(Admission, PromptAndAnswerMustFitIntoTheContext) {
  PartsRig rig;  // 1024 positions.
  EXPECT_EQ(begin_code(rig, tokens(1025)), Errc::out_of_range);
  EXPECT_EQ(begin_code(rig, tokens(1000), {.reserve_tokens = 25}), Errc::out_of_range);
  rig.begin(tokens(1000), {.reserve_tokens = 24});
  EXPECT_EQ(begin_code(rig, tokens(1, 2)), Errc::out_of_blocks) << "that was promised";
}

TEST(Admission, LookupSaysWhatBeginWouldPlanAndTakesNothing) {
  PartsRig rig;
  rig.put(2, tokens(100));
  const Text text = tokens(100) + tokens(9, 2);
  const SequenceReport looked = rig.look(text, {.session = "a"});
  EXPECT_EQ(rig.state(2), SequenceState::idle);
  EXPECT_EQ(rig.books.sessions.size(), 0U);
  EXPECT_EQ(rig.books.stats.turns, 0U);
  const SequenceReport begun = rig.begin(text, {.session = "a"}).report;
  EXPECT_EQ(looked.reused_tokens, begun.reused_tokens);
  EXPECT_EQ(looked.steps, begun.steps);
  EXPECT_EQ(looked.reason, begun.reason);
}

}  // namespace
}  // namespace stemma::test
