// 64-bit tokens, and a lease with its block table in one call.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "stemma/stemma.h"
#include "support/c_cache.h"

namespace stemma::test {
namespace {

TEST(CTokens, AreNarrowedWhateverTheirNumber) {
  for (const size_t count : {0, 1, 3, 7, 8, 9, 31, 64, 1001}) {
    std::vector<int64_t> wide(count);
    std::iota(wide.begin(), wide.end(), (int64_t{1} << 31) - 1 - static_cast<int64_t>(count));
    std::vector<uint32_t> words(count + 1, 77);
    ASSERT_EQ(stemma_tokens_from_int64(wide.data(), count, words.data()), STEMMA_OK);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(words[i], static_cast<uint64_t>(wide[i]));
    EXPECT_EQ(words[count], 77U);
  }
}

TEST(CTokens, TheFirstThatIsNoneIsNamed) {
  for (const int64_t bad :
       {int64_t{-1}, int64_t{1} << 31, int64_t{1} << 32, std::numeric_limits<int64_t>::min(),
        std::numeric_limits<int64_t>::max()}) {
    for (const size_t at : {0, 5, 99}) {
      std::vector<int64_t> wide(100, 3);
      wide[at] = bad;
      wide[99] = bad;
      std::vector<uint32_t> words(100);
      EXPECT_EQ(stemma_tokens_from_int64(wide.data(), 100, words.data()), STEMMA_OUT_OF_RANGE);
      EXPECT_EQ(stemma_last_error_value(), at);
    }
  }
  uint32_t word = 0;
  EXPECT_EQ(stemma_tokens_from_int64(nullptr, 1, &word), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_tokens_from_int64(nullptr, 0, nullptr), STEMMA_OK);
}

class CLeaseTable : public ::testing::Test {
 protected:
  void SetUp() override {
    stemma_group_options group = STEMMA_GROUP_OPTIONS_INIT;
    group.capacity_blocks = 64;
    stemma_options options = STEMMA_OPTIONS_INIT;
    options.groups = &group;
    options.group_count = 1;
    ASSERT_EQ(stemma_cache_create(&options, &cache), STEMMA_OK);
    stemma_scope_spec spec = STEMMA_SCOPE_SPEC_INIT;
    spec.model = {"m", 1};
    ASSERT_EQ(stemma_scope_make(&spec, &scope), STEMMA_OK);
    std::iota(words.begin(), words.end(), 5U);
    wide.assign(words.begin(), words.end());
  }
  void TearDown() override {
    EXPECT_EQ(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE), STEMMA_OK);
  }
  stemma_status lease_table(const void* tokens, uint32_t bytes, size_t capacity) {
    return stemma_cache_lease_table(cache, &scope, tokens, 40, bytes, table.data(), capacity,
                                    STEMMA_NO_BLOCK, &blocks, &lease);
  }

  stemma_cache* cache = nullptr;
  stemma_scope scope{};
  std::vector<uint32_t> words = std::vector<uint32_t>(40), table = std::vector<uint32_t>(8, 1);
  std::vector<int64_t> wide;
  uint32_t blocks = 0;
  stemma_lease lease = 0;
};

TEST_F(CLeaseTable, IsWhatTheTwoCallsGive) {
  for (int round = 0; round < 2; ++round) {
    const bool narrow = round == 0;
    ASSERT_EQ(narrow ? lease_table(words.data(), 4, 8) : lease_table(wide.data(), 8, 8), STEMMA_OK);
    EXPECT_EQ(blocks, 3U);
    std::vector<uint32_t> again(8);
    uint32_t count = 0;
    ASSERT_EQ(stemma_lease_block_table(lease, 0, again.data(), 8, STEMMA_NO_BLOCK, &count),
              STEMMA_OK);
    EXPECT_EQ(table, again);
    stemma_positions at;
    ASSERT_EQ(stemma_lease_positions(lease, &at), STEMMA_OK);
    EXPECT_EQ(at.reused, narrow ? 0U : 39U);
    if (narrow) {
      ASSERT_EQ(stemma_lease_commit(lease, 40, nullptr), STEMMA_OK);
    }
    ASSERT_EQ(stemma_lease_release(lease, nullptr), STEMMA_OK);
  }
}

TEST_F(CLeaseTable, TakesNothingWhenItFails) {
  EXPECT_EQ(lease_table(words.data(), 4, 2), STEMMA_OUT_OF_RANGE);  // The table is too small.
  EXPECT_EQ(lease_table(words.data(), 5, 8), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(lease_table(nullptr, 4, 8), STEMMA_INVALID_ARGUMENT);
  wide[7] = -1;
  EXPECT_EQ(lease_table(wide.data(), 8, 8), STEMMA_OUT_OF_RANGE);
  EXPECT_EQ(stemma_last_error_value(), 7U);
  words[3] = STEMMA_TOKEN_LIMIT;
  EXPECT_NE(lease_table(words.data(), 4, 8), STEMMA_OK);
  EXPECT_EQ(lease, 0U);
  stemma_stats stats;
  stats.struct_size = sizeof stats;
  ASSERT_EQ(stemma_cache_stats(cache, &stats), STEMMA_OK);
  EXPECT_EQ(stats.leases, 0U);
  EXPECT_EQ(stats.groups[0].draft_blocks, 0U);
}

}  // namespace
}  // namespace stemma::test
