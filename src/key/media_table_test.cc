#include "key/media_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace stemma::key {
namespace {

MediaIdentity picture(uint8_t content) {
  return {.kind = MediaKind::image, .causal = false, .length = 8, .digest = {content}};
}

TEST(MediaTable, TheSameItemHasOneNumber) {
  MediaTable table;
  const uint32_t number = table.intern(1, picture(1)).value();
  EXPECT_EQ(table.intern(1, picture(1)).value(), number);
  EXPECT_EQ(table.find(1, picture(1)), number);
  EXPECT_EQ(table.identity(number), picture(1));
  EXPECT_EQ(table.scope(number), 1U);
  EXPECT_EQ(table.size(), 1U);
  table.check_invariants();
}

TEST(MediaTable, EqualDigestOfAnotherKindIsAnotherItem) {
  MediaTable table;
  std::set<uint32_t> numbers;
  MediaIdentity identity = picture(1);
  numbers.insert(table.intern(1, identity).value());
  identity.kind = MediaKind::audio;
  numbers.insert(table.intern(1, identity).value());
  identity.causal = true;
  numbers.insert(table.intern(1, identity).value());
  identity.length = 9;
  numbers.insert(table.intern(1, identity).value());
  identity.digest[15] = 1;
  EXPECT_EQ(table.find(1, identity), std::nullopt);
  numbers.insert(table.intern(1, identity).value());
  EXPECT_EQ(numbers.size(), 5U);
  table.check_invariants();
}

TEST(MediaTable, ScopesDoNotShareNumbers) {
  MediaTable table;
  const uint32_t here = table.intern(1, picture(1)).value();
  EXPECT_EQ(table.find(2, picture(1)), std::nullopt);
  EXPECT_NE(table.intern(2, picture(1)).value(), here);
}

TEST(MediaTable, ANumberLivesAsLongAsItsLastReference) {
  MediaTable table;
  const uint32_t number = table.intern(1, picture(1)).value();
  table.add_reference(number);
  EXPECT_EQ(table.intern(1, picture(1)).value(), number);
  table.drop_reference(number);
  table.drop_reference(number);
  EXPECT_EQ(table.find(1, picture(1)), number);
  table.drop_reference(number);
  EXPECT_EQ(table.find(1, picture(1)), std::nullopt);
  EXPECT_EQ(table.size(), 0U);
  table.check_invariants();
}

TEST(MediaTable, TheNumberFreedLastIsGivenFirst) {
  MediaTable table;
  for (uint8_t i = 0; i < 5; ++i) EXPECT_EQ(table.intern(1, picture(i)).value(), i);
  table.drop_reference(3);
  table.drop_reference(1);
  EXPECT_EQ(table.intern(1, picture(10)).value(), 1U);
  EXPECT_EQ(table.intern(1, picture(11)).value(), 3U);
  EXPECT_EQ(table.intern(1, picture(12)).value(), 5U);
  table.check_invariants();
}

TEST(MediaTable, AFullTableRefusesAndStaysAsItWas) {
  MediaTable table(2);
  EXPECT_TRUE(table.intern(1, picture(1)));
  EXPECT_TRUE(table.intern(1, picture(2)));
  const Result<uint32_t> third = table.intern(1, picture(3));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Errc::out_of_memory);
  EXPECT_TRUE(table.intern(1, picture(2)));  // Known items need no room.
  table.drop_reference(0);
  EXPECT_EQ(table.intern(1, picture(3)).value(), 0U);
  table.check_invariants();
}

TEST(MediaTable, AnItemCanBeInternedFromItsOwnEntry) {
  MediaTable table;
  uint32_t number = table.intern(0, picture(1)).value();
  for (uint32_t scope = 1; scope < 1000; ++scope) {
    number = table.intern(scope, table.identity(number)).value();
    ASSERT_EQ(table.identity(number), picture(1));
  }
  table.check_invariants();
}

TEST(MediaTable, SaysHowMuchMemoryItHolds) {
  MediaTable table;
  EXPECT_EQ(table.bytes(), sizeof table);
  for (uint32_t scope = 0; scope < 1000; ++scope) {
    ASSERT_TRUE(table.intern(scope, picture(1)));
  }
  EXPECT_GE(table.bytes(), 1000U * (40 + 4));
  EXPECT_LE(table.bytes(), 4000U * (40 + 4));
}

TEST(MediaTable, AgreesWithAPlainMapUnderRandomUse) {
  using Name = std::tuple<uint32_t, uint8_t, uint32_t>;  // Scope, content, length.
  std::mt19937 random(4);
  MediaTable table;
  std::map<Name, std::pair<uint32_t, int>> model;  // Number and references.
  for (int step = 0; step < 50'000; ++step) {
    const Name name{random() % 4, static_cast<uint8_t>(random() % 40), 1 + random() % 3};
    MediaIdentity identity = picture(std::get<1>(name));
    identity.length = std::get<2>(name);
    const uint32_t scope = std::get<0>(name);
    const auto known = model.find(name);
    if (random() % 2 == 0) {
      const uint32_t number = table.intern(scope, identity).value();
      auto& [expected, references] = model.try_emplace(name, number, 0).first->second;
      ASSERT_EQ(number, expected);
      ++references;
    } else if (known != model.end()) {
      const uint32_t number = known->second.first;
      ASSERT_EQ(table.find(scope, identity), number);
      ASSERT_EQ(table.identity(number), identity);
      table.drop_reference(number);
      if (--known->second.second == 0) model.erase(known);
    } else {
      ASSERT_EQ(table.find(scope, identity), std::nullopt);
    }
    ASSERT_EQ(table.size(), model.size());
    if (step % 1000 == 0) table.check_invariants();
  }
  std::set<uint32_t> numbers;
  for (const auto& [name, entry] : model) numbers.insert(entry.first);
  EXPECT_EQ(numbers.size(), model.size());
}

}  // namespace
}  // namespace stemma::key
