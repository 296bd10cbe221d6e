// Tiers under a PagedCache that forget: nothing that is on its way comes back.
#include <thread>

#include "tiers/paged_rig.h"

namespace stemma::test {
namespace {

using tier::LevelPurged;

class PagedForget : public PagedTiersTest {
 protected:
  uint64_t forget_all_of(const Scope& in, const Text& prefix,
                         const std::function<void()>& drop_here) {
    const std::vector<LevelPurged> purged = tiers->forget(in, prefix, soon(), drop_here);
    EXPECT_EQ(purged.size(), 1U);
    EXPECT_TRUE(purged[0].purged.complete) << purged[0].purged.error;
    return purged[0].purged.entries;
  }
  // How much of it comes back from the tiers alone.
  uint32_t comes_back(const Text& text, const Scope& in) {
    forget();
    return ok(tiers->restore(in, text)).restored_tokens;
  }
};

}  // namespace

TEST_F(PagedForget, AForgottenScopeIsForgottenEverywhereAndOthersAreNot) {
  make({full(32, 4)});
  const Text text = text_of(24, 1);
  serve(text, scope);
  serve(text, other);
  settle();
  EXPECT_EQ(forget_all_of(scope, {}, [&] { cache->drop_scope(scope); }), 6U);
  EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 0U);
  EXPECT_EQ(comes_back(text, scope), 0U);
  EXPECT_EQ(comes_back(text, other), 24U);
  EXPECT_EQ(serve(text, scope), 0U);
  EXPECT_EQ(comes_back(text, scope), 24U) << "the scope may come again";
}

TEST_F(PagedForget, APrefixStaysAndWhatIsDeeperGoes) {
  make({full(32, 4)});
  const Text text = text_of(24, 1);
  serve(text, scope);
  settle();
  EXPECT_EQ(forget_all_of(scope, text.first(10), [&] { ok(cache->truncate(scope, text, 10)); }),
            4U);
  EXPECT_EQ(comes_back(text, scope), 8U);
}

TEST_F(PagedForget, EverythingOfThisLayoutGoes) {
  make({full(32, 4)});
  serve(text_of(24, 1), scope);
  serve(text_of(24, 2), other);
  settle();
  const auto purged = tiers->forget_everything(soon(), [&] { ok(cache->reset()); });
  EXPECT_EQ(purged[0].purged.entries, 12U);
  EXPECT_EQ(comes_back(text_of(24, 1), scope), 0U);
  EXPECT_EQ(comes_back(text_of(24, 2), other), 0U);
}

TEST_F(PagedForget, WhatIsBeingRestoredDoesNotComeIntoTheCache) {
  for (const bool is_forgotten : {false, true}) {
    make({full(32, 4)});
    const Text text = text_of(24, 1);
    serve(text, scope);
    forget();
    host->set_plan({.stall = true});
    std::thread restoring([&] { ok(tiers->restore(scope, text)); });
    while (host->faults().delayed_batches == 0) std::this_thread::yield();
    const auto go_on = [&] {
      host->set_plan({});
      restoring.join();
    };
    is_forgotten ? (void)forget_all_of(scope, {}, go_on) : go_on();
    EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, is_forgotten ? 0U : 23U);
  }
}

TEST_F(PagedForget, NothingOfTheScopeIsStoredMeanwhile) {
  make({full(64, 4)});
  const Text mine = text_of(24, 1), others = text_of(24, 2);
  Lease lease = ok(cache->lease(scope, mine)), their = ok(cache->lease(other, others));
  engine->compute(lease, 0, 24, Story(1, mine));
  engine->compute(their, 0, 24, Story(2, others));
  ok(lease.commit(24));
  ok(their.commit(24));
  forget_all_of(scope, {}, [&] {
    EXPECT_EQ(ok(tiers->store(scope, mine, lease)), 0U);
    EXPECT_EQ(ok(tiers->store(other, others, their)), 6U);
  });
  settle();
  EXPECT_EQ(stored(), 6U);
  ok(lease.release());
  ok(their.release());
}

}  // namespace stemma::test
