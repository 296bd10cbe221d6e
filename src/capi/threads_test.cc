// Eight threads, stale numbers, and one number used by two threads: statuses, never a crash.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/c_cache.h"

namespace stemma::test {
namespace {

#ifdef STEMMA_TSAN
constexpr int kRounds = 300;
#else
constexpr int kRounds = 2000;
#endif
constexpr int kThreads = 8;

class CapiThreads : public CapiFixture {
 protected:
  void SetUp() override {
    CapiFixture::SetUp();
    group = c_group(512);
    create();
  }
  template <class Work>
  static void on_threads(const Work& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&work, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(CapiThreads, RequestsOfTheirOwnDoNotDisturbEachOther) {
  on_threads([&](int t) {
    std::mt19937 rng(static_cast<uint32_t>(t));
    stemma_lease old = 0;
    for (int i = 0; i < kRounds; ++i) {
      const std::vector<uint32_t> words = tokens(8 + rng() % 60, 1 + rng() % 3).tokens;
      const stemma_prompt prompt = c_prompt(words);
      stemma_lease lease = 0;
      const stemma_status got = stemma_cache_lease(cache, &scope, &prompt, nullptr, &lease);
      if (got == STEMMA_OUT_OF_BLOCKS) continue;
      ASSERT_OK(got);
      size_t copies = 0;
      ASSERT_OK(stemma_lease_copies(lease, nullptr, 0, &copies));
      if (copies != 0) {
        ASSERT_OK(stemma_lease_copies_done(lease));
      }
      stemma_positions at{};
      ASSERT_OK(stemma_lease_positions(lease, &at));
      ASSERT_EQ(at.length, words.size());
      ASSERT_OK(stemma_lease_commit(lease, at.length, nullptr));
      if (old != 0) {
        ASSERT_EQ(stemma_lease_commit(old, 1, nullptr), STEMMA_STALE);
      }
      ASSERT_OK(stemma_lease_release(lease, nullptr));
      old = lease;
    }
  });
}

// All threads have all numbers. Every answer is ok, busy or stale, and each lease ends once.
TEST_F(CapiThreads, OneLeaseInManyHandsIsUsedByOneAtATime) {
  constexpr int kLeases = 4;
  std::vector<std::atomic<uint64_t>> shared(kLeases);
  std::atomic<uint64_t> taken{0}, ended{0}, busy{0}, stale{0};
  on_threads([&](int t) {
    std::mt19937 rng(static_cast<uint32_t>(t) + 100);
    const std::vector<uint32_t> words = tokens(40).tokens;
    const stemma_prompt prompt = c_prompt(words);
    for (int i = 0; i < kRounds * 2; ++i) {
      std::atomic<uint64_t>& place = shared[rng() % kLeases];
      const uint64_t lease = place.load();
      stemma_status got = STEMMA_OK;
      uint32_t table[8];
      const uint32_t more[2] = {1, 2};
      stemma_positions at{};
      switch (lease == 0 ? 0 : rng() % 8) {
        case 0: {
          stemma_lease made = 0;
          if (stemma_cache_lease(cache, &scope, &prompt, nullptr, &made) != STEMMA_OK) break;
          ++taken;
          uint64_t none = lease;
          if (place.compare_exchange_strong(none, made)) {
            if (lease != 0 && stemma_lease_release(lease, nullptr) == STEMMA_OK) ++ended;
          } else if (stemma_lease_abandon(made, nullptr) == STEMMA_OK) {
            ++ended;
          }
          break;
        }
        case 1:
          got = stemma_lease_release(lease, nullptr);
          if (got == STEMMA_OK) ++ended;
          break;
        case 2: got = stemma_lease_positions(lease, &at); break;
        case 3: got = stemma_lease_extend(lease, more, 2); break;
        case 4: got = stemma_lease_copies_done(lease); break;
        case 5: got = stemma_lease_commit(lease, 40, nullptr); break;
        case 6: got = stemma_lease_rewind(lease, 38); break;
        default:
          got = stemma_lease_block_table(lease, 0, table, 8, STEMMA_NO_BLOCK, nullptr);
          break;
      }
      if (got == STEMMA_BUSY) ++busy;
      if (got == STEMMA_STALE) ++stale;
      ASSERT_NE(got, STEMMA_INVALID_ARGUMENT) << stemma_last_error_message();
      if (at.length != 0) {
        ASSERT_LE(at.committed, at.length);
      }
    }
  });
  // A release that collided with another call was refused; end those leases here.
  for (std::atomic<uint64_t>& place : shared) {
    if (place != 0 && stemma_lease_release(place, nullptr) == STEMMA_OK) ++ended;
  }
  EXPECT_GT(stale.load(), 0U);
  // A lease that was replaced while another thread used it may be left over: its number is lost,
  // and a deferred destroy does not touch it.
  const uint64_t left = stats().leases;
  EXPECT_EQ(taken.load() - ended.load(), left);
  if (left != 0) {
    EXPECT_EQ(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE), STEMMA_BUSY);
    EXPECT_EQ(stemma_last_error_value(), left);
    cache = nullptr;
  }
  RecordProperty("busy", static_cast<int>(busy.load()));
}

TEST_F(CapiThreads, LeasesMayEndElsewhereAfterTheirCacheWasDestroyed) {
  static std::atomic<int> closed{0};
  closed = 0;
  for (int round = 0; round < 20; ++round) {
    stemma_cache* mine = nullptr;
    stemma_options with_end = options;
    with_end.closed = [](void*) { ++closed; };
    ASSERT_OK(stemma_cache_create(&with_end, &mine));
    std::vector<stemma_lease> leases(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      const std::vector<uint32_t> words = tokens(20, static_cast<uint32_t>(t) + 1).tokens;
      const stemma_prompt prompt = c_prompt(words);
      ASSERT_OK(stemma_cache_lease(mine, &scope, &prompt, nullptr, &leases[t]));
    }
    std::thread destroyer([&] { EXPECT_OK(stemma_cache_destroy(mine, STEMMA_ON_BUSY_DEFER)); });
    on_threads([&](int t) {
      EXPECT_OK(stemma_lease_commit(leases[t], 20, nullptr));
      EXPECT_OK(stemma_lease_release(leases[t], nullptr));
    });
    destroyer.join();
    EXPECT_EQ(closed.load(), round + 1);
  }
}

TEST_F(CapiThreads, EachThreadHasItsOwnLastError) {
  on_threads([&](int t) {
    EXPECT_STREQ(stemma_last_error_message(), "");
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(stemma_cache_set_quota(cache, static_cast<uint32_t>(t) + 1, 1),
                STEMMA_INVALID_ARGUMENT);
      EXPECT_NE(std::string(stemma_last_error_message()).find("set_quota"), std::string::npos);
    }
  });
}

// Releases a lease, with ranges, when its thread ends.
struct AtThreadEnd {
  stemma_lease lease = 0;
  stemma_status status = STEMMA_INVALID_ARGUMENT;
  stemma_status* out = nullptr;
  ~AtThreadEnd() {
    if (out == nullptr) return;
    const stemma_priority_range ranges[2] = {{0, 8, 60, 0, STEMMA_NEVER}, {8, 16, 40, 0, 1000}};
    stemma_retain retain = STEMMA_RETAIN_INIT;
    retain.ranges = ranges;
    retain.range_count = 2;
    stemma_release_options options = STEMMA_RELEASE_OPTIONS_INIT;
    options.retain = &retain;
    *out = stemma_lease_release(lease, &options);
  }
};
thread_local AtThreadEnd at_thread_end;

TEST_F(CapiThreads, LeasesMayBeReleasedWhileTheirThreadEnds) {
  stemma_status status = STEMMA_INVALID_ARGUMENT;
  std::thread([&] {
    at_thread_end.out = &status;  // Made before this thread's first call, so destroyed after it.
    const std::vector<uint32_t> words = tokens(40).tokens;
    std::vector<stemma_media_item> media(20);
    for (uint32_t i = 0; i < 20; ++i) {
      media[i] = {};
      media[i].kind = STEMMA_MEDIA_IMAGE;
      media[i].offset = 2 * i;
      media[i].length = 1;
    }
    stemma_prompt prompt = c_prompt(words);
    prompt.media = media.data();
    prompt.media_count = media.size();
    ASSERT_OK(stemma_cache_lease(cache, &scope, &prompt, nullptr, &at_thread_end.lease));
    ASSERT_OK(stemma_lease_commit(at_thread_end.lease, 40, nullptr));
  }).join();
  EXPECT_EQ(status, STEMMA_OK);
}

TEST_F(CapiThreads, LogHandlerMayBeTakenAwayWhileOthersLog) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> lines{0};
  std::thread switching([&] {
    while (!stop) {
      ASSERT_OK(stemma_set_log_handler([](void* user, uint32_t, const char*,
                                          size_t) { ++*static_cast<std::atomic<uint64_t>*>(user); },
                                       &lines));
      ASSERT_OK(stemma_set_log_handler(nullptr, nullptr));
    }
  });
  const uint8_t junk[3] = {1, 2, 3};
  on_threads([&](int) {
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_EQ(stemma_cache_load(cache, junk, sizeof junk), STEMMA_CORRUPT);
    }
  });
  stop = true;
  switching.join();
}

TEST_F(CapiThreads, PinsOfOneCacheAreNoneOfAnothers) {
  stemma_cache* const first = cache;
  const std::vector<uint32_t> words = tokens(40).tokens;
  const stemma_prompt prompt = c_prompt(words);
  const auto fill_and_pin = [&](stemma_cache* c, stemma_pin* pin) {
    stemma_lease lease = 0;
    ASSERT_OK(stemma_cache_lease(c, &scope, &prompt, nullptr, &lease));
    ASSERT_OK(stemma_lease_commit(lease, 40, nullptr));
    ASSERT_OK(stemma_lease_release(lease, nullptr));
    ASSERT_OK(stemma_cache_pin(c, &scope, &prompt, STEMMA_NEVER, pin));
  };
  stemma_pin one{}, other{};
  fill_and_pin(first, &one);
  create();
  fill_and_pin(cache, &other);
  EXPECT_EQ(stemma_cache_unpin(cache, one.id), STEMMA_STALE);
  EXPECT_OK(stemma_cache_unpin(cache, other.id));
  EXPECT_OK(stemma_cache_unpin(first, one.id));
  EXPECT_OK(stemma_cache_destroy(first, STEMMA_ON_BUSY_DEFER));
}

}  // namespace
}  // namespace stemma::test
