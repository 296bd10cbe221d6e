// Memory runs out at every point at which the books of a SequenceCache ask for it.
#include <gtest/gtest.h>

#include <new>

#include "fault/failing_new.h"
#include "sequence/room.h"

namespace stemma::test {
namespace {

using sequence::Room;

TEST(RoomMemory, AFailedPrepareChangesNothingAndASuccessfulOneIsEnough) {
  EngineTraits traits;
  traits.sequences = 8;
  traits.context_tokens = 10'000;
  Room room;
  room.create(traits);
  uint64_t failed = 0;
  // A chain of copies, each of which goes on a little: more pieces than were ever needed before.
  for (uint32_t s = 0; s + 1 < traits.sequences; ++s) {
    const SequenceId from{s}, to{s + 1};
    for (uint64_t n = 1;; ++n) {
      const uint64_t used = room.used();
      try {
        const FailingNew failing(n);
        room.prepare(from, from);
        room.prepare(to, from);
      } catch (const std::bad_alloc&) {
        ++failed;
        ASSERT_EQ(room.used(), used);
        room.check_invariants();
        continue;
      }
      break;
    }
    const NoMemory none;
    room.set_length(from, room.length(from) + 10);
    room.share(from, to, room.length(from) - 1);
    room.set_length(from, room.length(from) - 5);
  }
  EXPECT_GT(failed, 4U);
  {
    const NoMemory none;
    for (uint32_t s = 0; s < traits.sequences; ++s) room.set_length(SequenceId{s}, 0);
  }
  EXPECT_EQ(room.used(), 0U);
  room.check_invariants();
}

}  // namespace
}  // namespace stemma::test
