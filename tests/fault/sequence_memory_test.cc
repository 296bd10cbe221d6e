// Memory runs out at every point at which the books of a SequenceCache ask for it.
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "fault/failing_new.h"
#include "sequence/room.h"
#include "sequence/session_table.h"

namespace stemma::test {
namespace {

using sequence::Room;
using sequence::SessionTable;

TEST(RoomMemory, AFailedPrepareChangesNothingAndASuccessfulOneIsEnough) {
  EngineTraits traits;
  traits.sequences = 16;
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
  }
  EXPECT_GT(failed, 4U);
  {
    const NoMemory none;
    for (uint32_t s = 0; s < traits.sequences; ++s) {
      room.set_length(SequenceId{s}, room.length(SequenceId{s}) / 2);
      room.set_length(SequenceId{s}, 0);
    }
  }
  EXPECT_EQ(room.used(), 0U);
  room.check_invariants();
}

// Opens `name` at the first try for which memory lasts; the tries before must leave everything as it
// was. Returns how many failed.
uint64_t open_at_last(SessionTable& table, const std::string& name,
                      const std::vector<std::string>& known) {
  const uint64_t bytes = table.bytes();
  for (uint64_t n = 1;; ++n) {
    try {
      const FailingNew failing(n);
      EXPECT_NE(table.open(name), SessionTable::kNone);
      return n - 1;
    } catch (const std::bad_alloc&) {
      table.check_invariants();
      EXPECT_EQ(table.find(name), SessionTable::kNone);
      for (const std::string& other : known) EXPECT_NE(table.find(other), SessionTable::kNone);
      EXPECT_EQ(table.size(), known.size());
      EXPECT_LE(table.bytes(), bytes + 256);  // Room for more, at most.
    }
  }
}

TEST(SessionMemory, ASessionThatCannotBeOpenedCostsNobodyHisPlace) {
  SessionTable table;
  ASSERT_TRUE(table.create(3));
  const std::string tail(60, '.');  // Longer than what fits into a string itself.
  std::vector<std::string> known;
  uint64_t failed = 0;
  for (uint32_t i = 0; i < 12; ++i) {
    const std::string name = std::to_string(i) + tail;
    failed += open_at_last(table, name, known);
    known.push_back(name);
    if (known.size() > 3) known.erase(known.begin());
    ASSERT_EQ(table.size(), known.size());
    if (i == 7) {
      const NoMemory none;  // Forgetting needs no memory.
      table.forget(table.find(known[1]));
      known.erase(known.begin() + 1);
    }
  }
  EXPECT_GT(failed, 12U);
  const NoMemory none;
  EXPECT_NE(table.open(known.back()), SessionTable::kNone);
}

}  // namespace
}  // namespace stemma::test
