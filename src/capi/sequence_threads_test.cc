// Threads that look while the engine's thread works, and threads that collide where only one may
// work: correct statuses and answers, never a crash.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/c_sequences.h"

namespace stemma::test {
namespace {

#ifdef STEMMA_TSAN
constexpr int kSequenceRounds = 150;
#else
constexpr int kSequenceRounds = 600;
#endif

class SequenceThreads : public SequencesFixture {
 protected:
  void SetUp() override { create(); }
};

TEST_F(SequenceThreads, LookingGoesOnBesideTheEngine) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> looks{0};
  std::vector<std::thread> lookers;
  for (uint32_t t = 0; t < 3; ++t) {
    lookers.emplace_back([&, t] {
      std::mt19937 rng(t);
      while (!stop) {
        ++looks;
        const std::vector<uint32_t> words = tokens(1 + rng() % 100, 1 + rng() % 3).tokens;
        const stemma_prompt prompt = c_prompt(words);
        stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
        ASSERT_OK(stemma_sequences_lookup(cache, &scope, &prompt, nullptr, &report));
        ASSERT_LT(report.reused_tokens, words.size());
        ASSERT_LE(report.reused_tokens, report.matched_tokens);
        const stemma_sequence_stats s = stats();
        ASSERT_EQ(s.free_sequences + s.idle_sequences + s.leased_sequences + s.broken_sequences,
                  3U);
        stemma_session_info session = STEMMA_SESSION_INFO_INIT;
        ASSERT_OK(stemma_sequences_session(cache, "talk", 4, &session));
        stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
        ASSERT_OK(stemma_sequences_sequence(cache, rng() % 3, &info));
        uint32_t number = 0;
        ASSERT_OK(stemma_sequences_pending(cache, &number));
        ASSERT_OK(stemma_sequences_can_admit(cache, "talk", 4, &number));
        ASSERT_OK(stemma_sequences_contents(
            cache, [](void*, const stemma_sequence_content* item) { ASSERT_NE(item->depth, 0U); },
            nullptr));
      }
    });
  }
  std::mt19937 rng(9);
  for (int i = 0; i < kSequenceRounds || looks < 20; ++i) {
    const std::vector<uint32_t> words = tokens(8 + rng() % 200, 1 + rng() % 3).tokens;
    const stemma_prompt prompt = c_prompt(words);
    stemma_turn_options said = STEMMA_TURN_OPTIONS_INIT;
    said.session = {"talk", 4};
    stemma_turn turn = 0;
    ASSERT_OK(stemma_sequences_begin(cache, &scope, &prompt, &said, &turn));
    compute(turn, words);
    const stemma_turn_place at = place(turn);
    ASSERT_EQ(engine.right(SequenceId{at.sequence}, words), "");
    if (rng() % 4 == 0) {
      ASSERT_OK(stemma_turn_rewind(turn, 4));
    }
    if (rng() % 5 == 0) {
      ASSERT_OK(stemma_turn_abandon(turn));
    } else {
      ASSERT_OK(stemma_turn_finish(turn, nullptr));
    }
    if (rng() % 3 == 0) {
      ASSERT_OK(stemma_sequences_drain(cache, 2, UINT64_MAX, 0, nullptr));
    }
    if (rng() % 50 == 0) {
      ASSERT_OK(stemma_sequences_drop_scope(cache, &scope));
    }
    if (rng() % 50 == 0) {
      ASSERT_OK(stemma_sequences_end_session(cache, "talk", 4));
    }
  }
  stop = true;
  for (std::thread& thread : lookers) thread.join();
}

// Every thread makes changes, one at a time: the others get `busy`, and each change is complete.
TEST_F(SequenceThreads, SecondChangeAtTheSameTimeIsBusy) {
  constexpr int kPlaces = 3;
  std::vector<std::atomic<uint64_t>> shared(kPlaces);
  std::atomic<uint64_t> begun{0}, ended{0}, busy{0};
  const std::vector<uint32_t> words = tokens(40).tokens;
  const stemma_prompt prompt = c_prompt(words);
  // Takes a moment, so that other threads arrive meanwhile.
  c_engine.before = [](void*) -> stemma_status { return std::this_thread::yield(), STEMMA_OK; };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(t + 100);
      for (int i = 0; i < kSequenceRounds * 3; ++i) {
        std::atomic<uint64_t>& place = shared[rng() % kPlaces];
        const uint64_t turn = place.load();
        stemma_status got = STEMMA_OK;
        const uint32_t more[2] = {1, 2};
        stemma_turn_place at{};
        switch (turn == 0 ? 0 : rng() % 8) {
          case 0: {
            stemma_turn made = 0;
            got = stemma_sequences_begin(cache, &scope, &prompt, nullptr, &made);
            if (got != STEMMA_OK) break;
            ++begun;
            uint64_t none = 0;
            if (place.compare_exchange_strong(none, made)) break;
            while ((got = stemma_turn_abandon(made)) == STEMMA_BUSY) ++busy;
            ASSERT_OK(got);
            ++ended;
            break;
          }
          case 1:
            got = stemma_turn_finish(turn, nullptr);
            if (got == STEMMA_OK) ++ended, place = 0;
            break;
          case 2: got = stemma_turn_positions(turn, &at); break;
          case 3: got = stemma_turn_extend(turn, more, 2); break;
          case 4: got = stemma_turn_execute(turn, nullptr); break;
          case 5: got = stemma_turn_rewind(turn, 0); break;
          case 6: got = stemma_sequences_drain(cache, 1, UINT64_MAX, 0, nullptr); break;
          default: got = stemma_turn_reserve(turn, 5); break;
        }
        if (got == STEMMA_BUSY) ++busy;
        ASSERT_NE(got, STEMMA_INVALID_ARGUMENT) << stemma_last_error_message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<uint64_t>& place : shared) {
    if (place != 0 && stemma_turn_abandon(place) == STEMMA_OK) ++ended;
  }
  EXPECT_EQ(begun.load(), ended.load());
  EXPECT_EQ(stats().leased_sequences, 0U);
  EXPECT_GT(busy.load(), 0U);
}

TEST_F(SequenceThreads, TurnsMayEndElsewhereAfterTheirCacheWasDestroyed) {
  static std::atomic<int> closed{0};
  closed = 0;
  for (int round = 0; round < 20; ++round) {
    stemma_sequences* mine = nullptr;
    stemma_sequence_options with_end = options;
    with_end.closed = [](void*) { ++closed; };
    ASSERT_OK(stemma_sequences_create(&c_engine.c, &with_end, &mine));
    stemma_turn turn[3] = {};
    for (uint32_t t = 0; t < 3; ++t) {
      const std::vector<uint32_t> words = tokens(20, t + 1).tokens;
      const stemma_prompt prompt = c_prompt(words);
      ASSERT_OK(stemma_sequences_begin(mine, &scope, &prompt, nullptr, &turn[t]));
    }
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      while (stemma_sequences_destroy(mine, STEMMA_ON_BUSY_DEFER) == STEMMA_BUSY) {
      }
    });
    for (const stemma_turn t : turn) {
      threads.emplace_back([t] {
        stemma_status got;
        while ((got = stemma_turn_abandon(t)) == STEMMA_BUSY) {
        }
        EXPECT_TRUE(got == STEMMA_OK || got == STEMMA_STALE);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(closed.load(), round + 1);
  }
}

}  // namespace
}  // namespace stemma::test
