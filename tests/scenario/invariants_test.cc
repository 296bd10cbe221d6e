// Invariants that hold after any sequence of operations, checked with random ones. The seed is in
// the test's name. tests/model compares every decision with a model; this file checks only
// promises.
#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

struct Mix {
  const char* name;
  std::vector<GroupOptions> groups;
  uint64_t quota_bytes = 0;  // Of each of two tenants; 0 = there are none.
};

const std::vector<Mix>& mixes() {
  static const std::vector<Mix> list = {
      {"full", {full(24, 4)}},
      {"full_of_one", {full(90, 1)}},
      {"window", {window(12, 40, 4)}},
      {"full_and_window", {full(30, 8), window(10, 50, 2, 3)}},
      {"recurrent", {full(30, 4), recurrent(6)}},
      {"hybrid", {full(40, 4), window(8, 40, 4), recurrent(5), recurrent(7)}},
      {"tenants", {full(60, 4)}, 25 * 256},
      {"tenants_and_window", {full(40, 4), window(8, 60, 2)}, 40 * 256},
  };
  return list;
}

class Invariants : public PagedFixture, public ::testing::WithParamInterface<size_t> {
 protected:
  struct Running {
    Lease lease;
    Text text;
    Story story;
    std::vector<BlockId> before_committed;  // Of group 0: these may not change from now on.
  };

  // Few first halves, many second halves, sometimes media: prompts share and part everywhere.
  Text random_text() {
    Text text = tokens(below(30), below(3)) + tokens(1 + below(25), 10 + below(4));
    for (uint32_t at = below(20); below(3) == 0 && at < text.size();) {
      const uint32_t length = 1 + below(std::min(9U, text.size() - at));
      text = text.with(media(MediaKind{static_cast<uint8_t>(1 + below(3))},
                             static_cast<uint8_t>(below(3)), at, length));
      at += 1 + below(length + 6);  // Now and then inside the item before.
    }
    return text;
  }
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  static bool inside_media(const Text& text, uint32_t n) {
    return std::ranges::any_of(text.media, [n](const MediaItem& item) {
      return item.offset < n && n < item.offset + item.length;
    });
  }
  static bool has_recurrent(const std::vector<GroupOptions>& groups, GroupIndex group) {
    return groups[group].attention == Attention::recurrent;
  }

 private:
  std::mt19937_64 random_{20240611};
};

TEST_P(Invariants, RandomRequestsReuseOnlyWhatIsRightAndLeasedBlocksStay) {
  const std::vector<GroupOptions>& groups = mixes()[GetParam()].groups;
  const uint64_t quota_bytes = mixes()[GetParam()].quota_bytes;
  const Scope scopes[] = {scope, scope_of({.model = "another"})};
  Options all = grouped(groups);
  for (uint32_t i = 1; i <= 2 && quota_bytes != 0; ++i) {
    all.quotas.push_back({.tenant = TenantId{i}, .bytes = quota_bytes});
  }
  PagedCache& cache = cache_with(all);
  Engine engine(groups);
  std::vector<Running> running;
  uint64_t reused = 0;
  for (int step = 0; step < 1500; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    clock.advance_ns(1000);
    const Text text = random_text();
    LeaseOptions options;
    options.retain.priority = static_cast<Priority>(below(3) * 40);
    options.lookup.allow_copy = below(4) != 0;
    const uint32_t who = below(2);
    if (quota_bytes != 0) options.tenant = TenantId{who + 1};
    Result<Lease> taken = cache.lease(scopes[who], text, options);
    if (taken) {
      Lease& lease = *taken;
      engine.memory.poison(lease, lease.reused());
      const Story story = story_of(text, who);
      ASSERT_LT(lease.reused(), std::max(1U, text.size())) << "something is always evaluated";
      ASSERT_FALSE(inside_media(text, lease.reused()));
      reused += lease.reused();
      uint32_t end = lease.reused() + below(text.size() - lease.reused() + 1);
      if (below(2) == 0) end = text.size();
      engine.run(lease, story, end);
      for (GroupIndex g = 0; g < groups.size(); ++g) {
        if (has_recurrent(groups, g) && end > 0 && !inside_media(text, end) && below(2) == 0) {
          if (Result<BlockId> slot = lease.draft_checkpoint(g)) {
            engine.memory.save_state(g, *slot, story, end);
            ok(lease.commit_checkpoint(g, end));
          }
        }
      }
      if (below(3) == 0) {
        std::vector<BlockId> table = blocks_of(lease);
        table.resize(std::min<size_t>(table.size(), lease.committed() / groups[0].block_tokens));
        running.push_back({std::move(lease), text, story, table});
      } else if (below(5) == 0) {
        ok(lease.abandon());
      }
    } else {
      ASSERT_TRUE(code(taken) == Errc::out_of_blocks ||
                  (code(taken) == Errc::over_quota && quota_bytes != 0));
    }
    for (uint32_t i = 1; i <= 2 && quota_bytes != 0; ++i) {
      ASSERT_LE(cache.tenant_bytes(TenantId{i}), quota_bytes);
    }
    if (below(40) == 0) {
      const Result<PinResult> pin = cache.pin(scopes[who], text, 1 + below(20'000));
      ASSERT_TRUE(pin || code(pin) == Errc::over_pin_share);
    }
    if (below(10) == 0) cache.evict(below(6));
    if (below(25) == 0) ok(cache.truncate(scopes[who], text, below(text.size() + 1)));
    for (const Running& r : running) {
      engine.expect_right(r.lease, r.story, r.lease.committed());
      if (groups[0].attention == Attention::full) {
        std::vector<BlockId> now = blocks_of(r.lease);
        now.resize(r.before_committed.size());
        ASSERT_EQ(now, r.before_committed) << "a leased block moved";
      }
    }
    if (!running.empty() && (!taken || running.size() > 4)) {
      running.erase(running.begin() + below(static_cast<uint32_t>(running.size())));
    }
    if (HasFailure()) return;
    if (step % 50 == 0) cache.check_invariants();
  }
  EXPECT_GT(reused, 200U) << "the run should have shared something";
}

INSTANTIATE_TEST_SUITE_P(Seed20240611, Invariants, ::testing::Range<size_t>(0, 8),
                         [](const auto& mix) { return std::string(mixes()[mix.param].name); });

class Cost : public PagedFixture {};

TEST_F(Cost, LookupDoesNotGrowWithTheNumberOfEntries) {
  auto best_ns = [&](uint32_t entries) {
    PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 130'000});
    const Text query = tokens(512, 1);
    fill(cache, query);
    for (uint32_t i = 0; i < entries; ++i) {
      Text other = tokens(32, 2);
      other.tokens[0] = i * 2;
      other.tokens[20] = i;
      fill(cache, other);
    }
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 3000; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(hit(cache, query), 511U);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  };
  const auto few = best_ns(10);
  const auto many = best_ns(50'000);
  EXPECT_LT(many, 10 * few) << "five thousand times the entries";
}

TEST_F(Cost, EvictionDoesNotGrowWithWhatIsCached) {
  auto best_ns = [&](uint32_t entries) {
    PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 100'000});
    for (uint32_t i = 0; i < entries; ++i) {
      Text other = tokens(16, 2);
      other.tokens[0] = i;
      fill(cache, other);
    }
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 50; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(cache.evict(16), 16U);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  };
  const auto few = best_ns(1000);
  const auto many = best_ns(90'000);
  EXPECT_LT(many, 20 * few) << "ninety times the leaves";
}

}  // namespace
}  // namespace stemma::test
