#include "cache/books/quotas.h"

#include <gtest/gtest.h>

namespace stemma::cache {
namespace {

constexpr uint64_t kBytes = 100;

class QuotasTest : public testing::Test {
 protected:
  QuotasTest() {
    GroupOptions options;
    options.capacity_blocks = 8;
    options.block_bytes = kBytes;
    EXPECT_TRUE(full_.create(options, 16, false, 8));
    options.attention = Attention::recurrent;
    EXPECT_TRUE(states_.create(options, 16, false, 8));
    quotas_.add({.tenant = TenantId{7}, .bytes = 3 * kBytes});
    quotas_.add({.tenant = TenantId{9}, .bytes = kBytes});
  }

  Group full_;
  Group states_;
  Quotas quotas_;
};

TEST_F(QuotasTest, TenantsWithoutAQuotaShareIndexZeroAndAreNotCounted) {
  EXPECT_EQ(quotas_.index_of(TenantId{7}), 1u);
  EXPECT_EQ(quotas_.index_of(TenantId{9}), 2u);
  EXPECT_EQ(quotas_.index_of(TenantId{8}), 0u);
  quotas_.drafted(0, full_);
  EXPECT_EQ(quotas_.used_bytes(0), 0u);
}

TEST_F(QuotasTest, WhatIsUsedIsCountedFromDraftToEnd) {
  quotas_.drafted(1, full_);
  quotas_.drafted(1, states_);
  EXPECT_EQ(quotas_.used_bytes(1), 2 * kBytes);
  EXPECT_EQ(quotas_.paged_bytes(1), 0u);  // Drafts are not cached.
  quotas_.cached(1, full_);
  quotas_.cached(1, states_);
  EXPECT_EQ(quotas_.paged_bytes(1), kBytes);  // The state is no block.
  quotas_.check_invariants();
  quotas_.freed(1, states_, Quotas::Was::cached);
  quotas_.freed(1, full_, Quotas::Was::cached);
  quotas_.drafted(1, full_);
  quotas_.freed(1, full_, Quotas::Was::draft);
  EXPECT_EQ(quotas_.used_bytes(1), 0u);
  EXPECT_EQ(quotas_.used_bytes(2), 0u);
  quotas_.check_invariants();
}

TEST_F(QuotasTest, ExcessIsWhatGoesBeyondTheQuota) {
  quotas_.drafted(1, full_);
  EXPECT_EQ(quotas_.excess(1, 2 * kBytes), 0u);
  EXPECT_EQ(quotas_.excess(1, 2 * kBytes + 1), 1u);
  EXPECT_TRUE(quotas_.set(TenantId{7}, kBytes / 2));
  EXPECT_EQ(quotas_.excess(1, 0), kBytes / 2);
  EXPECT_FALSE(quotas_.set(TenantId{8}, 1));
}

TEST_F(QuotasTest, HeldCellsCountAsTheMostTheyCouldBe) {
  for (int i = 0; i < 3; ++i) {
    quotas_.drafted(1, full_);
    quotas_.cached(1, full_);
  }
  quotas_.hold(1, 2);
  EXPECT_EQ(quotas_.surely_unheld_bytes(1, kBytes), kBytes);
  quotas_.hold(1, 2);
  EXPECT_EQ(quotas_.surely_unheld_bytes(1, kBytes), 0u);
  quotas_.unhold(1, 4);
  EXPECT_EQ(quotas_.surely_unheld_bytes(1, kBytes), 3 * kBytes);
}

}  // namespace
}  // namespace stemma::cache
