// Tiers under a stemma_sequences, through the C ABI and two shared libraries, as a C engine uses
// them.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "stemma/stemma_tiers.h"
#include "support/c_sequences.h"
#include "support/cache_fixture.h"
#include "support/temporary_directory.h"

namespace stemma::test {
namespace {

constexpr uint64_t kSequenceWait = 60'000'000'000;
constexpr stemma_status kBad = STEMMA_INVALID_ARGUMENT;

stemma_level host(uint64_t bytes = 16U << 20U) {
  stemma_level level = STEMMA_LEVEL_INIT;
  level.capacity_bytes = bytes;
  return level;
}
stemma_level disk(const std::string& path, uint64_t bytes = 64U << 20U) {
  stemma_level level = host(bytes);
  level.kind = STEMMA_LEVEL_DISK;
  level.where = path.c_str();
  return level;
}
stemma_stack* stack_of(const std::vector<stemma_level>& levels) {
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  options.levels = levels.data();
  options.level_count = levels.size();
  options.query_ns = kSequenceWait;  // A busy machine must not look like a slow tier.
  stemma_stack* stack = nullptr;
  EXPECT_OK(stemma_stack_create(&options, &stack));
  return stack;
}
stemma_level_stats level_stats(stemma_stack* stack, uint32_t level) {
  stemma_level_stats stats{};
  stats.struct_size = sizeof stats;
  EXPECT_OK(stemma_stack_level_stats(stack, level, &stats));
  return stats;
}

class SequenceTiersAbi : public SequencesFixture {
 protected:
  void start(stemma_stack* over) {
    stack = over;
    stemma_sequence_tiers_options with = STEMMA_SEQUENCE_TIERS_OPTIONS_INIT;
    with.traits = &c_engine.traits;
    ASSERT_OK(stemma_sequence_tiers_create(stack, &with, &tiers));
    ASSERT_OK(stemma_sequence_tiers_listen(tiers, &options));
    create();
  }
  void end_cache() {
    SequencesFixture::TearDown();
    cache = nullptr;
  }
  // The process ends in order, and its memory is forgotten.
  void stop() {
    uint32_t done = 0;
    EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr));
    EXPECT_OK(stemma_stack_flush(stack, kSequenceWait, &done));
    EXPECT_EQ(done, 1U);
    end_cache();
    EXPECT_REFUSED(STEMMA_BUSY, "use this stack", stemma_stack_destroy, stack);
    EXPECT_OK(stemma_sequence_tiers_destroy(tiers));
    EXPECT_OK(stemma_stack_destroy(stack));
    EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_stack_destroy, stack);
    for (uint32_t s = 0; s < 3; ++s) EXPECT_TRUE(engine.clear(SequenceId{s}));
    stack = nullptr;
  }
  void TearDown() override {
    if (stack != nullptr) stop();
  }
  stemma_fetch fetch(const std::vector<uint32_t>& words) {
    const stemma_prompt prompt = c_prompt(words);
    stemma_fetch fetch = 0;
    EXPECT_OK(stemma_sequence_tiers_fetch(tiers, cache, &scope, &prompt, nullptr, nullptr, nullptr,
                                          &fetch));
    return fetch;
  }
  // As a server does it: fetched while the request waits, added to the cache, served.
  uint32_t request(const std::vector<uint32_t>& words, stemma_fetched* told = nullptr) {
    const stemma_fetch one = fetch(words);
    stemma_fetched fetched{};
    EXPECT_OK(stemma_fetch_wait(one, kSequenceWait, &fetched));
    EXPECT_EQ(fetched.over, 1U);
    EXPECT_OK(stemma_fetch_admit(one, cache, nullptr, nullptr));
    EXPECT_OK(stemma_fetch_end(one));
    EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_fetch_end, one);
    if (told != nullptr) *told = fetched;
    const stemma_turn turn = begin(words);
    const uint32_t available = compute(turn, words);
    EXPECT_EQ(engine.right(SequenceId{place(turn).sequence}, words), "");
    EXPECT_OK(stemma_turn_finish(turn, nullptr));
    return available;
  }

  TemporaryDirectory directory;  // Still exists when TearDown() stores the rest.
  stemma_stack* stack = nullptr;
  stemma_sequence_tiers* tiers = nullptr;
};

TEST_F(SequenceTiersAbi, AProcessThatStartsAgainFindsOnDiskWhatItSaved) {
  const std::vector<uint32_t> words = tokens(300).tokens;
  start(stack_of({host(), disk(directory / "store")}));
  EXPECT_EQ(request(words), 0U);
  stop();
  start(stack_of({host(), disk(directory / "store")}));
  EXPECT_GT(level_stats(stack, 1).entries, 0U);
  EXPECT_STREQ(level_stats(stack, 1).name, "disk");
  stemma_fetched fetched{};
  EXPECT_EQ(request(words, &fetched), 299U);
  EXPECT_EQ(fetched.level, 1U);
  EXPECT_GE(fetched.loaded_tokens, 299U);
  EXPECT_GT(level_stats(stack, 1).hits, 0U);
  EXPECT_EQ(level_stats(stack, 1).corrupt, 0U);
  stemma_fetch_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_OK(stemma_sequence_tiers_stats(tiers, &stats));
  EXPECT_EQ(stats.fetches, 1U);
  EXPECT_EQ(stats.loaded, 1U);
  // Another tenant's salt makes another scope.
  scope = c_scope("another model");
  EXPECT_EQ(request(words, &fetched), 0U);
  EXPECT_EQ(fetched.stored_tokens, 0U);
}

TEST_F(SequenceTiersAbi, AForgottenScopeDoesNotComeBack) {
  const std::vector<uint32_t> words = tokens(300).tokens;
  const stemma_scope other = c_scope("another model"), first = scope;
  start(stack_of({host(), disk(directory / "store")}));
  request(words);
  scope = other;
  request(words);
  stop();
  start(stack_of({host(), disk(directory / "store")}));
  struct Dropped {
    stemma_sequences* cache;
    const stemma_scope* scope;
    uint32_t calls;
  } dropped{cache, &first, 0};
  const auto drop = [](void* user) {
    auto& what = *static_cast<Dropped*>(user);
    ++what.calls;
    EXPECT_OK(stemma_sequences_drop_scope(what.cache, what.scope));
  };
  uint32_t complete = 0;
  stemma_level_purged levels[2] = {};
  for (stemma_level_purged& one : levels) one.struct_size = sizeof one;
  ASSERT_OK(stemma_sequence_tiers_forget(tiers, &first, nullptr, 60'000'000'000U, drop, &dropped,
                                         levels, 2, &complete));
  EXPECT_EQ(complete, 1U) << levels[0].error << levels[1].error;
  EXPECT_EQ(dropped.calls, 1U);
  EXPECT_STREQ(levels[1].name, "disk");
  EXPECT_GT(levels[1].entries, 0U);
  EXPECT_GT(levels[1].bytes, 0U);
  EXPECT_EQ(request(words), 299U) << "another scope's stays";
  scope = first;
  EXPECT_EQ(request(words), 0U);
}

TEST_F(SequenceTiersAbi, ALevelThatIsWrittenBackGetsWhatLeaves) {
  const std::string path = directory / "store";
  stemma_level level = disk(path);
  level.write = STEMMA_WRITE_BACK;
  options.saved_bytes = 64U << 10U;
  start(stack_of({level}));
  const auto crowd = [&] {
    uint32_t done = 0;
    for (uint32_t i = 0; i < 12; ++i) {
      request(tokens(300, 100 + i).tokens);
      EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr));
      EXPECT_OK(stemma_stack_flush(stack, kSequenceWait, &done));
    }
  };
  const std::vector<uint32_t> words = tokens(300).tokens;
  EXPECT_EQ(request(words), 0U);
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr));
  EXPECT_OK(stemma_stack_flush(stack, kSequenceWait, nullptr));
  EXPECT_EQ(level_stats(stack, 0).stored, 0U);
  crowd();
  EXPECT_GT(level_stats(stack, 0).written_back, 0U);
  stemma_fetched fetched{};
  EXPECT_GE(request(words, &fetched), 256U);
  EXPECT_GT(fetched.bytes, 0U);
  // What is still in memory is stored at the end.
  const std::vector<uint32_t> last = tokens(300, 7).tokens;
  request(last);
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr));
  stemma_handed_on all{};
  ASSERT_OK(stemma_sequences_hand_on(cache, 0, UINT64_MAX, &all));
  EXPECT_EQ(all.over, 1U);
  EXPECT_GT(all.parts, 0U);
  stemma_fetch_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_OK(stemma_sequence_tiers_stats(tiers, &stats));
  EXPECT_EQ(stats.written_back, level_stats(stack, 0).written_back);
  EXPECT_GE(stats.written_back_bytes, all.bytes);
  stop();
  start(stack_of({level}));
  EXPECT_EQ(request(last), 299U);
}

TEST_F(SequenceTiersAbi, ACallerOfAnOlderVersionHasWriteThrough) {
  stemma_level level = host();
  start(stack_of({level}));
  stemma_sequence_options old = STEMMA_SEQUENCE_OPTIONS_INIT;
  old.struct_size = offsetof(stemma_sequence_options, listener.wants);
  EXPECT_OK(stemma_sequence_tiers_listen(tiers, &old));
  EXPECT_NE(old.listener.saved, nullptr);
  EXPECT_EQ(old.listener.wants, nullptr);  // It lies beyond the struct.
  stemma_level_stats level_stats{};
  level_stats.struct_size = offsetof(stemma_level_stats, written_back);
  EXPECT_OK(stemma_stack_level_stats(stack, 0, &level_stats));
  stemma_fetch_stats fetch_stats{};
  fetch_stats.struct_size = offsetof(stemma_fetch_stats, used_again);
  EXPECT_OK(stemma_sequence_tiers_stats(tiers, &fetch_stats));
  stop();
  level.write = STEMMA_WRITE_BACK;
  start(stack_of({level}));
  EXPECT_REFUSED(STEMMA_UNSUPPORTED, "write-back", stemma_sequence_tiers_listen, tiers, &old);
}

TEST_F(SequenceTiersAbi, AFetchTellsWhenItIsOver) {
  start(stack_of({host()}));
  std::atomic<uint32_t> over{0};
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prompt = c_prompt(words);
  stemma_fetch one = 0;
  ASSERT_OK(stemma_sequence_tiers_fetch(
      tiers, cache, &scope, &prompt, nullptr,
      [](void* user) { ++*static_cast<std::atomic<uint32_t>*>(user); }, &over, &one));
  stemma_fetched fetched{};
  ASSERT_OK(stemma_fetch_wait(one, kSequenceWait, &fetched));
  EXPECT_EQ(fetched.over, 1U);
  EXPECT_EQ(fetched.loaded_tokens, 0U);
  ASSERT_OK(stemma_fetch_cancel(one));
  ASSERT_OK(stemma_fetch_end(one));
  while (over == 0) std::this_thread::yield();
  EXPECT_EQ(over, 1U);
}

TEST_F(SequenceTiersAbi, FetchesOutliveTheirTiersAndAreOver) {
  start(stack_of({host()}));
  std::vector<stemma_fetch> many;
  for (uint32_t i = 0; i < 50; ++i) many.push_back(fetch(tokens(100 + i).tokens));
  stop();
  for (const stemma_fetch one : many) {
    stemma_fetched fetched{};
    EXPECT_OK(stemma_fetch_wait(one, 0, &fetched));
    EXPECT_EQ(fetched.over, 1U);
    EXPECT_OK(stemma_fetch_end(one));
  }
}

TEST_F(SequenceTiersAbi, WhatIsSavedAfterTheTiersWentStaysInTheCache) {
  start(stack_of({host()}));
  ASSERT_OK(stemma_sequence_tiers_destroy(tiers));
  const std::vector<uint32_t> words = tokens(200).tokens;
  serve(words);
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr));
  EXPECT_GT(stats().segment_bytes, 0U);
  EXPECT_OK(stemma_stack_destroy(stack));
  stack = nullptr;
  end_cache();
}

TEST_F(SequenceTiersAbi, BadCallsAreNamed) {
  start(stack_of({host()}));
  EXPECT_REFUSED(kBad, "fetch is 0", stemma_fetch_end, 0);
  EXPECT_REFUSED(kBad, "no fetch", stemma_fetch_cancel, ~uint64_t{0});
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prompt = c_prompt(words);
  const stemma_turn turn = begin(words);
  EXPECT_REFUSED(kBad, "no fetch", stemma_fetch_end, turn);
  ASSERT_OK(stemma_turn_abandon(turn));
  stemma_fetch one = 0;
  EXPECT_REFUSED(kBad, "out is null", stemma_sequence_tiers_fetch, tiers, cache, &scope, &prompt,
                 nullptr, nullptr, nullptr, nullptr);
  EXPECT_EQ(
      stemma_sequence_tiers_fetch(tiers, nullptr, &scope, &prompt, nullptr, nullptr, nullptr, &one),
      kBad);
  EXPECT_STREQ(stemma_last_error_message(),
               "stemma_sequences_lookup: invalid_argument: cache is null");
  EXPECT_REFUSED(kBad, "tiers points", stemma_sequence_tiers_destroy,
                 reinterpret_cast<stemma_sequence_tiers*>(&one));
  stemma_sequence_options other = STEMMA_SEQUENCE_OPTIONS_INIT;
  other.segment_tokens = 32;
  EXPECT_REFUSED(kBad, "segment_tokens", stemma_sequence_tiers_listen, tiers, &other);
  EXPECT_EQ(other.listener.saved, nullptr);
  other.segment_tokens = 64;
  other.struct_size = offsetof(stemma_sequence_options, listener);
  EXPECT_REFUSED(kBad, "no listener", stemma_sequence_tiers_listen, tiers, &other);
  stemma_sequence_tiers_options with = STEMMA_SEQUENCE_TIERS_OPTIONS_INIT;
  stemma_sequence_tiers* none = nullptr;
  EXPECT_REFUSED(kBad, "traits", stemma_sequence_tiers_create, stack, &with, &none);
  with.traits = &c_engine.traits;
  with.segment_tokens = 48;
  EXPECT_REFUSED(kBad, "segment_tokens", stemma_sequence_tiers_create, stack, &with, &none);
  with.segment_tokens = 64;
  with.threads = 0;
  EXPECT_REFUSED(kBad, "threads", stemma_sequence_tiers_create, stack, &with, &none);
  EXPECT_EQ(none, nullptr);
}

TEST(StackAbi, WrongLevelsAreNamed) {
  const TemporaryDirectory directory;
  stemma_stack* stack = nullptr;
  std::vector<stemma_level> levels = {host(), host()};
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  const auto refused_stack = [&](stemma_status status, const char* culprit) {
    options.levels = levels.data();
    options.level_count = levels.size();
    EXPECT_REFUSED(status, culprit, stemma_stack_create, &options, &stack);
  };
  EXPECT_REFUSED(kBad, "options is null", stemma_stack_create, nullptr, &stack);
  EXPECT_REFUSED(kBad, "no level", stemma_stack_create, &options, &stack);
  levels[1].kind = 9;
  refused_stack(kBad, "kind of this level");
  EXPECT_EQ(stemma_last_error_value(), 1U);
  levels[1] = host();
  levels[1].write = 3;
  refused_stack(kBad, "write of this level");
  levels[1] = host();
  levels[1].struct_size = 8;
  refused_stack(kBad, "differs from that of the first");
  levels[1] = host(1);
  refused_stack(kBad, "");
  levels[1] = disk("");
  levels[1].where = nullptr;
  refused_stack(kBad, "no directory");
  levels[1].kind = STEMMA_LEVEL_REDIS;
  levels[1].capacity_bytes = 0;
  refused_stack(kBad, "no URL");
  levels[1].where = "http://example";
  refused_stack(kBad, "");
  // Only one process at a time can use a directory.
  const std::string path = directory / "store";
  levels = {disk(path), disk(path)};
  refused_stack(STEMMA_BUSY, "");
  levels.resize(9, host());
  refused_stack(kBad, "more than 8");
  EXPECT_EQ(stack, nullptr);
}

TEST(StackAbi, ARedisThatIsAwayIsALevelThatHasNothing) {
  stemma_level redis = STEMMA_LEVEL_INIT;
  redis.kind = STEMMA_LEVEL_REDIS;
  redis.where = "redis://127.0.0.1:1";
  stemma_stack* stack = stack_of({host(), redis});
  uint32_t count = 0;
  EXPECT_OK(stemma_stack_level_count(stack, &count));
  EXPECT_EQ(count, 2U);
  EXPECT_STREQ(level_stats(stack, 1).name, "redis");
  stemma_level_stats stats{};
  stats.struct_size = sizeof stats;
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "no such level", stemma_stack_level_stats, stack, 2, &stats);
  EXPECT_OK(stemma_stack_prefilled(stack, 100, 1'000'000));
  EXPECT_OK(stemma_stack_flush(stack, kSequenceWait, nullptr));
  EXPECT_OK(stemma_stack_destroy(stack));
}

TEST(StackAbi, LogsWhereTheOtherLibraryLogs) {
  const TemporaryDirectory directory;
  std::string lines;
  ASSERT_OK(stemma_set_log_handler(
      [](void* user, uint32_t, const char* line, size_t size) {
        static_cast<std::string*>(user)->append(line, size);
      },
      &lines));
  stemma_stack* stack = stack_of({disk(directory / "store")});
  EXPECT_OK(stemma_stack_destroy(stack));
  ASSERT_OK(stemma_set_log_handler(nullptr, nullptr));
  EXPECT_NE(lines.find("disk tier"), std::string::npos) << lines;
}

}  // namespace
}  // namespace stemma::test
