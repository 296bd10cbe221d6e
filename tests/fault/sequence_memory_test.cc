// Memory runs out at every point at which the books of a SequenceCache ask for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fault/failing_new.h"
#include "sequence/room.h"
#include "sequence/session_table.h"
#include "support/sequence_rig.h"

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

// Opens `name` at the first try for which memory lasts; the tries before must leave everything as
// it was. Returns how many failed.
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

// A second try must not find its words there twice.
TEST(TurnMemory, WordsThatCannotBeAddedAreNotAdded) {
  SequenceOptions options = small_cache();
  options.interval_tokens = 1;
  SequenceRig rig(hybrid_engine(), options);
  Request request = rig.begin(tokens(40, 1));
  rig.run(request);
  const std::vector<Token> words = tokens(300, 2).tokens;
  uint64_t failed = 0;
  for (uint64_t n = 1;; ++n) {
    Result<void> done;
    {
      const FailingNew failing(n);
      done = request.turn.extend(words);
    }
    if (done) break;
    ++failed;
    EXPECT_EQ(done.error().code(), Errc::out_of_memory);
    EXPECT_EQ(request.turn.length(), 40U);
  }
  EXPECT_EQ(request.turn.length(), 340U);
  EXPECT_EQ(failed, 2U) << "for the words, and for where to stop";
  rig.abandon(request);
}

// The books have no record left of pictures that nobody holds.
TEST(TurnMemory, RefusedRequestsLeaveNoMediaItems) {
  SequenceRig rig;
  const uint32_t ends[] = {20, 30, 40};
  const auto ask = [&](uint32_t i) {
    MediaItem item = image(static_cast<uint8_t>(i), 10, 20);
    item.digest[0] = static_cast<uint8_t>(i >> 8U);
    const Text text = tokens(60, 1).with(item);
    const FailingNew failing(1 + i / 2 % 20);
    if (i % 2 == 0) {
      (void)rig.cache.lookup(rig.scope, text, {.message_ends = ends});
    } else {
      (void)rig.cache.begin(rig.scope, text, {.message_ends = ends});
    }
  };
  for (uint32_t i = 0; i < 80; ++i) ask(i);
  const uint64_t bytes = rig.cache.stats().index_bytes;
  for (uint32_t i = 80; i < 4000; ++i) ask(i);
  EXPECT_EQ(rig.cache.stats().index_bytes, bytes);
}

TEST(TurnMemory, TruncatingMayRunOutAndThenNothingHasChanged) {
  for (const EngineOptions& engine : {full_engine(), hybrid_engine()}) {
    SequenceRig rig(engine);
    const Text text = tokens(60, 1).with(image(1, 20, 10)) + tokens(80, 2);
    const uint32_t ends[] = {60, 100};
    rig.chat(text, {.message_ends = ends});
    rig.drain();
    rig.renew_context();
    // Somebody uses it: what the fake engine needs memory for is not looked at here.
    Request running = rig.begin(text + tokens(20, 3));
    rig.run(running);
    const uint64_t bytes = rig.cache.stats().saved_bytes;
    uint64_t failed = 0;
    for (uint64_t n = 1;; ++n) {
      Result<Truncated> done = Error(Errc::busy, "");
      {
        const FailingNew failing(n);
        done = rig.cache.truncate(rig.scope, text, 60);
      }
      rig.check("truncate");
      if (done) break;
      ++failed;
      EXPECT_EQ(done.error().code(), Errc::out_of_memory);
      EXPECT_EQ(rig.cache.stats().saved_bytes, bytes);
    }
    EXPECT_GT(failed, 2U);
    EXPECT_LT(rig.cache.stats().saved_bytes, bytes);
    rig.abandon(running);
    EXPECT_LE(rig.look(text).matched_tokens, 60U);
  }
}

// Keeps what is saved; wants everything that leaves, with its words, and only counts it.
class Keeper final : public SavedListener {
 public:
  void saved(const Scope&, const Prompt&, const SavedPart& part, const ContentKey&,
             const Retain&) noexcept override {
    bytes_.emplace_back(part.bytes.begin(), part.bytes.end());
    parts.push_back({part.kind, part.range, bytes_.back()});
  }
  uint32_t wants(EntryKind, const ContentKey&, SeenAgain) noexcept override { return 1; }
  bool take(const KeptPart& part, uint32_t) noexcept override {
    EXPECT_TRUE(part.words.empty() || part.words.size() == part.range.end - part.range.begin);
    ++left;
    return true;
  }
  bool keeps_words() const noexcept override { return true; }

  std::vector<SavedPart> parts;
  uint64_t left = 0;

 private:
  std::deque<std::vector<uint8_t>> bytes_;
};

TEST(TurnMemory, WhatIsAdmittedPushesOthersOutWithOrWithoutMemory) {
  const auto heard_by = [](Keeper& keeper) {
    SequenceOptions options = small_cache();
    options.saved_bytes = 40U << 10U;
    options.listener = &keeper;
    return options;
  };
  for (EngineOptions engine : {full_engine(), hybrid_engine(), hybrid_state_engine()}) {
    engine.state_bytes = 4096;
    Keeper theirs;
    const Text text = tokens(300, 1);
    {
      SequenceRig other(engine, heard_by(theirs));
      other.chat(text);
      other.drain();
    }
    ASSERT_FALSE(theirs.parts.empty());
    std::ranges::stable_sort(theirs.parts, {}, [](const SavedPart& part) {
      return std::pair(part.range.end, part.kind);
    });
    Keeper ours;
    SequenceRig rig(engine, heard_by(ours));
    uint64_t failed = 0;
    uint64_t before = 0;
    for (uint32_t n = 1; n <= 30; ++n) {
      // Other requests take all the room.
      for (uint32_t i = 0; i < 4; ++i) {
        rig.chat(tokens(300, 100 * n + i));
        rig.take_all_sequences();
      }
      before = ours.left;
      Result<Admitted> done = Admitted{};
      {
        const FailingNew failing(n);
        done = rig.cache.admit(rig.scope, text, theirs.parts);
      }
      rig.check("admit");
      EXPECT_TRUE(done || done.error().code() == Errc::out_of_memory);
      failed += !done || done->refused != 0 ? 1 : 0;
    }
    EXPECT_GE(failed, 2U);
    EXPECT_GT(ours.left, before);
    EXPECT_GE(rig.hit(text + tokens(9, 2)), 256U);
    {
      const NoMemory none;
      EXPECT_GT(rig.cache.hand_on().parts, 0U);
    }
  }
}

TEST(TurnMemory, ReservingMayRunOut) {
  SequenceRig rig;
  rig.chat(tokens(100, 1));
  Request planned = rig.begin(tokens(110, 1));
  Request request = rig.begin(tokens(40, 3));
  rig.run(request);
  rig.chat(tokens(500, 4));
  uint64_t failed = 0;
  for (uint64_t n = 1;; ++n) {
    Result<void> done;
    {
      const FailingNew failing(n);
      done = request.turn.reserve(800);
    }
    if (done) break;
    ++failed;
    EXPECT_EQ(done.error().code(), Errc::out_of_memory);
    EXPECT_EQ(rig.cache.stats().idle_sequences, 1U);
  }
  EXPECT_GT(failed, 0U);
  EXPECT_EQ(rig.cache.stats().idle_sequences, 0U);
  rig.abandon(request);
  rig.abandon(planned);
}

}  // namespace
}  // namespace stemma::test
