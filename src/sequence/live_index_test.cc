#include "sequence/live_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace stemma::sequence {
namespace {

using Words = std::vector<uint32_t>;

Scope live_scope(std::string_view salt) {
  return *Scope::make({.model = "m", .tenant_salt = std::string(salt)});
}
Words run(uint32_t count, uint32_t from = 1) {
  Words words(count);
  for (uint32_t i = 0; i < count; ++i) words[i] = from + i;
  return words;
}
std::map<uint32_t, uint32_t> matches(LiveIndex& index, const Scope& scope, const Words& words) {
  std::vector<LiveIndex::Match> found;
  index.match(scope, words, found);
  std::map<uint32_t, uint32_t> out;
  for (const auto& match : found) out[static_cast<uint32_t>(match.sequence)] = match.positions;
  return out;
}

constexpr SequenceId kA{0}, kB{1}, kC{2};

TEST(LiveIndex, SequencesAreMatchedToTheWord) {
  LiveIndex index;
  ASSERT_TRUE(index.create(3, 1000));
  const Scope scope = live_scope("");
  Words b = run(60);
  b[37] = 999;
  ASSERT_TRUE(index.append(kA, scope, run(50)));
  ASSERT_TRUE(index.append(kB, scope, b));
  ASSERT_TRUE(index.append(kC, scope, run(10, 500)));
  EXPECT_EQ(matches(index, scope, run(60)), (std::map<uint32_t, uint32_t>{{0, 50}, {1, 37}}));
  EXPECT_EQ(matches(index, scope, run(20)), (std::map<uint32_t, uint32_t>{{0, 20}, {1, 20}}));
  EXPECT_EQ(matches(index, scope, {500, 501, 7}), (std::map<uint32_t, uint32_t>{{2, 2}}));
  EXPECT_TRUE(matches(index, scope, run(9, 77)).empty());
}

TEST(LiveIndex, ScopesShareNothingAndVanishWhenEmpty) {
  LiveIndex index;
  ASSERT_TRUE(index.create(2, 1000));
  ASSERT_TRUE(index.append(kA, live_scope("one"), run(50)));
  EXPECT_TRUE(matches(index, live_scope("two"), run(50)).empty());
  index.clear(kA);
  EXPECT_TRUE(matches(index, live_scope("one"), run(50)).empty());
  ASSERT_TRUE(index.append(kA, live_scope("two"), run(5)));
  EXPECT_EQ(matches(index, live_scope("two"), run(50)).at(0), 5U);
  index.check_invariants();
}

TEST(LiveIndex, MoreThanSequencesCanHoldIsRefusedAndChangesNothing) {
  LiveIndex index;
  ASSERT_TRUE(index.create(1, 160));
  ASSERT_TRUE(index.append(kA, live_scope(""), run(100)));
  const Result<void> refused = index.append(kA, live_scope(""), run(500, 101));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::out_of_range);
  EXPECT_EQ(index.length(kA), 100U);
  EXPECT_EQ(matches(index, live_scope(""), run(300)).at(0), 100U);
  index.check_invariants();
}

TEST(LiveIndex, RandomSequencesAgreeWithPlainVectors) {
  constexpr uint32_t kSequences = 6;
  std::mt19937 random(20261115);
  LiveIndex index;
  ASSERT_TRUE(index.create(kSequences, kSequences * 400));
  const std::vector<Scope> scopes{live_scope("x"), live_scope("y")};
  std::vector<Words> plain(kSequences);
  std::vector<uint32_t> scope(kSequences);
  uint64_t matched = 0;
  for (uint32_t step = 0; step < 20'000; ++step) {
    const uint32_t s = random() % kSequences;
    if (plain[s].empty()) scope[s] = random() % 2;
    if (random() % 3 != 0 && plain[s].size() < 350) {
      Words more;
      const uint32_t other = random() % kSequences;
      if (plain[s].empty() && !plain[other].empty()) {  // Begin like somebody else.
        more.assign(plain[other].begin(), plain[other].begin() + random() % plain[other].size());
      }
      for (uint32_t i = random() % 40; i > 0; --i) more.push_back(random() % 2);
      ASSERT_TRUE(index.append(SequenceId{s}, scopes[scope[s]], more));
      plain[s].insert(plain[s].end(), more.begin(), more.end());
    } else {
      const uint32_t n = random() % 4 == 0 ? 0 : random() % (plain[s].size() + 1);
      index.trim(SequenceId{s}, n);
      plain[s].resize(n);
    }
    ASSERT_EQ(index.length(SequenceId{s}), plain[s].size());
    Words words;
    index.read(SequenceId{s}, 0, index.length(SequenceId{s}), words);
    ASSERT_EQ(words, plain[s]);
    Words query = plain[random() % kSequences];
    if (!query.empty() && random() % 2 == 0) query[random() % query.size()] ^= 1;
    const auto found = matches(index, scopes[0], query);
    for (uint32_t i = 0; i < kSequences; ++i) {
      uint32_t common = 0;
      while (scope[i] == 0 && common < std::min(query.size(), plain[i].size()) &&
             query[common] == plain[i][common]) {
        ++common;
      }
      ASSERT_EQ(found.count(i) != 0 ? found.at(i) : 0, common) << "step " << step;
      matched += common;
    }
    if (step % 50 == 0) index.check_invariants();
  }
  EXPECT_GT(matched, 100'000U);
}

}  // namespace
}  // namespace stemma::sequence
