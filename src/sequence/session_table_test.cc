#include "sequence/session_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>

namespace stemma::sequence {
namespace {

constexpr uint32_t kNone = SessionTable::kNone;

struct Table : SessionTable {
  explicit Table(uint32_t capacity) { EXPECT_TRUE(create(capacity)); }
  bool knows(std::string_view name) const { return find(name) != kNone; }
};

TEST(SessionTable, ASessionIsFoundByItsName) {
  Table table(10);
  EXPECT_EQ(table.find("a"), kNone);
  const uint32_t a = table.open("a");
  const uint32_t b = table.open("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(table.find("a"), a);
  EXPECT_EQ(table.open("a"), a);
  EXPECT_EQ(table[a].name, "a");
  EXPECT_EQ(table[b].name, "b");
  EXPECT_EQ(table.size(), 2U);
  table.check_invariants();
}

TEST(SessionTable, WhatIsKnownOfASessionStaysUntilItIsForgotten) {
  Table table(2);
  const uint32_t a = table.open("a");
  table[a].turns = 7;
  table[a].generation = 3;
  table[a].length = 40;
  EXPECT_EQ(table[table.open("a")].turns, 7U);
  table.forget(a);
  EXPECT_EQ(table.find("a"), kNone);
  const uint32_t again = table.open("a");
  EXPECT_EQ(table[again].turns, 0U);
  EXPECT_EQ(table[again].generation, ~uint64_t{0});
  EXPECT_EQ(table[again].length, 0U);
}

TEST(SessionTable, TheOneUnusedLongestIsForgotten) {
  Table table(3);
  for (const char* name : {"a", "b", "c"}) table.open(name);
  table.open("a");  // Now b is the oldest.
  table.open("d");
  EXPECT_FALSE(table.knows("b"));
  table.open("e");
  EXPECT_FALSE(table.knows("c"));
  EXPECT_TRUE(table.knows("a"));
  EXPECT_TRUE(table.knows("d"));
  EXPECT_TRUE(table.knows("e"));
  EXPECT_EQ(table.size(), 3U);
  table.check_invariants();
}

TEST(SessionTable, NothingOfAForgottenSessionGoesToTheNextOne) {
  Table table(1);
  const uint32_t a = table.open("a");
  table[a].turns = 9;
  table[a].sequence = SequenceId{5};
  table[a].generation = 2;
  table[a].length = 30;
  table[a].last_used_ns = 77;
  const SessionId first = table[a].id;
  const uint32_t b = table.open("b");
  EXPECT_EQ(table.find("a"), kNone);
  EXPECT_EQ(table[b].name, "b");
  EXPECT_EQ(table[b].turns, 0U);
  EXPECT_EQ(table[b].sequence, SequenceId{});
  EXPECT_EQ(table[b].generation, ~uint64_t{0});
  EXPECT_EQ(table[b].length, 0U);
  EXPECT_EQ(table[b].last_used_ns, 0U);
  EXPECT_NE(table[b].id, first);
  table.check_invariants();
}

TEST(SessionTable, SessionsUnderWayAreNeverForgotten) {
  Table table(2);
  const uint32_t a = table.open("a");
  table[a].in_flight = 1;
  table.open("b");
  table.open("c");
  EXPECT_TRUE(table.knows("a"));
  EXPECT_FALSE(table.knows("b"));
  table[table.find("c")].in_flight = 2;
  EXPECT_EQ(table.open("d"), kNone);
  EXPECT_EQ(table.open("a"), a);  // A known name needs no place.
  EXPECT_EQ(table.size(), 2U);
  table[a].in_flight = 0;
  EXPECT_NE(table.open("d"), kNone);
  EXPECT_FALSE(table.knows("a"));
  table.check_invariants();
}

TEST(SessionTable, EveryLifeOfANameHasAnIdOfItsOwn) {
  Table table(2);
  std::set<SessionId> ids{kNoSession};
  for (uint32_t i = 0; i < 50; ++i) {
    const std::string name(1, static_cast<char>('a' + i % 3));
    if (const uint32_t known = table.find(name); known != kNone) table.forget(known);
    EXPECT_TRUE(ids.insert(table[table.open(name)].id).second) << i;
  }
}

TEST(SessionTable, NamesMayBeAnyBytes) {
  Table table(300);
  std::vector<std::string> names{std::string(1, '\0'),
                                 std::string(2, '\0'),
                                 std::string("a\0b", 3),
                                 std::string("a\0c", 3),
                                 "a",
                                 std::string(100'000, 'x'),
                                 std::string(100'000, 'x') + "y",
                                 "\xFF\xFE\x80",
                                 ""};
  for (uint32_t byte = 1; byte < 256; ++byte)
    names.push_back("byte " + std::string(1, static_cast<char>(byte)));
  std::map<std::string, uint32_t> places;
  for (const std::string& name : names) places[name] = table.open(name);
  EXPECT_EQ(table.size(), names.size());
  for (const std::string& name : names) {
    EXPECT_EQ(table.find(name), places[name]);
    EXPECT_EQ(table[places[name]].name, name);
  }
  EXPECT_GT(table.bytes(), 200'000U);
  table.check_invariants();
}

TEST(SessionTable, ANameIsNotBorrowed) {
  Table table(2);
  std::string name = "a conversation with a rather long name";
  const uint32_t session = table.open(name);
  name.assign(name.size(), '?');
  EXPECT_EQ(table.find("a conversation with a rather long name"), session);
  EXPECT_EQ(table.find(name), kNone);
}

TEST(SessionTable, RandomSessionsAgreeWithAPlainList) {
  std::mt19937 random(20261116);
  const auto dice = [&](uint32_t sides) { return static_cast<uint32_t>(random() % sides); };
  for (uint32_t capacity : {1U, 2U, 7U}) {
    Table table(capacity);
    std::list<std::string> order;  // Least recently used first.
    std::map<std::string, uint32_t> flights;
    for (uint32_t step = 0; step < 5000; ++step) {
      const std::string name = "session " + std::to_string(dice(2 * capacity + 2));
      const auto known = std::find(order.begin(), order.end(), name);
      ASSERT_EQ(table.knows(name), known != order.end());
      if (dice(5) == 0 && known != order.end()) {
        if (flights[name] == 0) {
          table.forget(table.find(name));
          order.erase(known);
        } else {
          table[table.find(name)].in_flight = --flights[name];
        }
        continue;
      }
      const uint32_t session = table.open(name);
      if (known == order.end() && order.size() == capacity) {
        const auto victim = std::find_if(order.begin(), order.end(),
                                         [&](const auto& it) { return flights[it] == 0; });
        ASSERT_EQ(session == kNone, victim == order.end());
        if (session == kNone) {
          // A turn ends.
          const std::string busy = order.front();
          table[table.find(busy)].in_flight = --flights[busy];
          continue;
        }
        order.erase(victim);
      } else if (known != order.end()) {
        order.erase(known);
      }
      order.push_back(name);
      if (dice(3) == 0) table[session].in_flight = ++flights[name];
      ASSERT_EQ(table.size(), order.size());
      table.check_invariants();
    }
  }
}

}  // namespace
}  // namespace stemma::sequence
