// Memory runs out below the C ABI: a status, and nothing that looks like an answer.
#include <gtest/gtest.h>

#include <vector>

#include "fault/failing_new.h"
#include "support/c_cache.h"

namespace stemma::test {
namespace {

class CapiMemory : public CapiFixture {
 protected:
  void SetUp() override {
    CapiFixture::SetUp();
    options.event_capacity = 16;
    create();
    fill(tokens(64).tokens);
  }
};

TEST_F(CapiMemory, DumpsWithoutMemoryAreErrors) {
  uint64_t calls = 0;
  uint64_t next = 77;
  const auto count = [](void* user, const uint8_t*, size_t) { ++*static_cast<uint64_t*>(user); };
  const auto event = [](void* user, const stemma_event*) { ++*static_cast<uint64_t*>(user); };
  {
    const NoMemory none;
    EXPECT_EQ(stemma_cache_dump(cache, count, &calls), STEMMA_OUT_OF_MEMORY);
    EXPECT_EQ(stemma_cache_event_dump(cache, event, &calls, &next), STEMMA_OUT_OF_MEMORY);
  }
  EXPECT_EQ(calls, 0U);
  EXPECT_EQ(next, 77U);
  EXPECT_OK(stemma_cache_dump(cache, count, &calls));
  EXPECT_OK(stemma_cache_event_dump(cache, event, &calls, &next));
  EXPECT_EQ(calls, 2U);
}

TEST_F(CapiMemory, EveryPointOfARequestMayRunOut) {
  const std::vector<uint32_t> words = tokens(200, 3).tokens;
  const stemma_prompt prompt = c_prompt(words);
  uint64_t refused = 0;
  for (uint64_t n = 1;; ++n) {
    stemma_lease lease = 0;
    bool fired;
    {
      const FailingNew failing(n);
      stemma_status got = stemma_cache_lease(cache, &scope, &prompt, nullptr, &lease);
      if (got == STEMMA_OK) got = stemma_lease_commit(lease, 48, nullptr);
      EXPECT_TRUE(got == STEMMA_OK || got == STEMMA_OUT_OF_MEMORY) << stemma_last_error_message();
      refused += got != STEMMA_OK ? 1 : 0;
      fired = failing.fired();
    }
    if (lease != 0) {
      const NoMemory none;
      EXPECT_OK(stemma_lease_release(lease, nullptr));
    }
    EXPECT_OK(stemma_cache_check_invariants(cache));
    EXPECT_OK(stemma_cache_reset(cache, STEMMA_ON_BUSY_REFUSE));
    if (!fired) break;
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace stemma::test
