// Tiers under a stemma_cache, through the C ABI: blocks come back to the places that the cache
// names, with the right bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "stemma/stemma_tiers.h"
#include "support/c_cache.h"
#include "support/cache_fixture.h"
#include "support/temporary_directory.h"

namespace stemma::test {
namespace {

constexpr uint64_t kMinute = 60'000'000'000;
constexpr uint32_t kBlockBytes = 1024;

class PagedTiersAbi : public CapiFixture {
 protected:
  enum class How { at_once, deferred, failing };

  void start() {
    stemma_level levels[2] = {STEMMA_LEVEL_INIT, STEMMA_LEVEL_INIT};
    levels[1].seal_keys = keys.empty() ? nullptr : keys.c_str();
    levels[0].capacity_bytes = 4U << 20U;
    levels[1].kind = STEMMA_LEVEL_DISK;
    levels[1].capacity_bytes = 64U << 20U;
    levels[1].where = path.c_str();
    levels[1].write = write;
    stemma_stack_options with = STEMMA_STACK_OPTIONS_INIT;
    with.levels = levels;
    with.level_count = 2;
    with.query_ns = kMinute;
    ASSERT_OK(stemma_stack_create(&with, &stack));
    io.user = this;
    io.read = read;
    io.write = write_blocks;
    if (under.groups == nullptr) {
      under.groups = &group;
      under.group_count = 1;
    }
    options.groups = under.groups;
    options.group_count = under.group_count;
    under.layout = 7;
    under.io = &io;
    create();
  }
  void start_all() {
    start();
    ASSERT_OK(stemma_paged_tiers_create(stack, &under, &tiers));
  }
  void stop() {
    if (stack == nullptr) return;
    EXPECT_OK(stemma_stack_flush(stack, kMinute, nullptr));
    if (tiers != nullptr) {
      EXPECT_REFUSED(STEMMA_BUSY, "use this stack", stemma_stack_destroy, stack);
      EXPECT_OK(stemma_paged_tiers_destroy(tiers));
      EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_paged_tiers_destroy, tiers);
    }
    EXPECT_OK(stemma_stack_destroy(stack));
    CapiFixture::TearDown();
    cache = nullptr;
    stack = nullptr;
    tiers = nullptr;
    std::fill(memory.begin(), memory.end(), 0xEE);
  }
  void TearDown() override {
    stop();
    for (std::thread& thread : threads) thread.join();
  }

  void end(stemma_io transfer) {
    if (how == How::failing) {
      EXPECT_OK(stemma_io_done(transfer, STEMMA_COPY_FAILED));
    } else if (how == How::deferred) {
      threads.emplace_back([transfer] { EXPECT_OK(stemma_io_done(transfer, STEMMA_OK)); });
    } else {
      EXPECT_OK(stemma_io_done(transfer, STEMMA_OK));
    }
  }
  static void read(void* user, stemma_io transfer, uint32_t in, const uint32_t* blocks,
                   size_t count, uint8_t* bytes, size_t size) {
    auto& self = *static_cast<PagedTiersAbi*>(user);
    EXPECT_EQ(size, count * kBlockBytes);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(bytes + i * kBlockBytes, self.at(blocks[i], in), kBlockBytes);
    }
    self.end(transfer);
  }
  static void write_blocks(void* user, stemma_io transfer, uint32_t in, const uint32_t* blocks,
                           size_t count, const uint8_t* bytes, size_t size) {
    auto& self = *static_cast<PagedTiersAbi*>(user);
    EXPECT_EQ(size, count * kBlockBytes);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(self.at(blocks[i], in), bytes + i * kBlockBytes, kBlockBytes);
    }
    self.end(transfer);
  }
  // Every group has room for 64 blocks.
  uint8_t* at(uint32_t block, uint32_t in = 0) {
    return memory.data() + (size_t{in} * 64 + block) * kBlockBytes;
  }

  // A whole request: restored, leased, checked, computed, stored. Returns the restore's result.
  stemma_restored request(const std::vector<uint32_t>& words) {
    const stemma_prompt prompt = c_prompt(words);
    stemma_lookup_options whole = STEMMA_LOOKUP_OPTIONS_INIT;
    whole.allow_copy = 0;
    stemma_lease_options leased = STEMMA_LEASE_OPTIONS_INIT;
    leased.lookup = &whole;
    stemma_restored restored{};
    EXPECT_OK(stemma_paged_tiers_prefetch(tiers, cache, &scope, &prompt));
    EXPECT_OK(stemma_paged_tiers_restore(tiers, cache, &scope, &prompt, &leased, &restored));
    stemma_lease lease = 0;
    EXPECT_OK(stemma_cache_lease(cache, &scope, &prompt, &leased, &lease));
    if (restored.hold != 0) {
      EXPECT_OK(stemma_lease_release(restored.hold, nullptr));
    }
    stemma_positions place{};
    EXPECT_OK(stemma_lease_positions(lease, &place));
    EXPECT_EQ(place.reused, restored.cached_tokens + restored.restored_tokens);
    uint32_t table[64] = {}, count = 0;
    EXPECT_OK(stemma_lease_block_table(lease, 0, table, 64, STEMMA_NO_BLOCK, &count));
    for (uint32_t b = 0; b < count; ++b) {
      const auto stamp = static_cast<uint8_t>(b * 7 + words[0]);
      if (b < place.reused / 16) {
        EXPECT_EQ(at(table[b])[0], stamp) << "block " << b;
        EXPECT_EQ(at(table[b])[kBlockBytes - 1], stamp) << "block " << b;
      } else {
        std::memset(at(table[b]), stamp, kBlockBytes);
      }
    }
    EXPECT_OK(stemma_lease_commit(lease, place.length, nullptr));
    stored = 0;
    store_status = stemma_paged_tiers_store(tiers, &scope, &prompt, lease, 0, 50, &stored);
    EXPECT_OK(stemma_lease_release(lease, nullptr));
    return restored;
  }

  static void drop(void* user) {
    auto& self = *static_cast<PagedTiersAbi*>(user);
    EXPECT_OK(stemma_cache_drop_scope(self.cache, &self.scope, nullptr));
  }

  TemporaryDirectory directory;
  std::string path = directory / "store";
  std::string keys;  // The key directory of the disk; empty: it is not sealed.
  uint32_t write = STEMMA_WRITE_THROUGH;
  How how = How::at_once;
  std::vector<uint8_t> memory = std::vector<uint8_t>(size_t{3} * 64 * kBlockBytes);
  std::vector<std::thread> threads;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  stemma_paged_tiers_options under = STEMMA_PAGED_TIERS_OPTIONS_INIT;
  stemma_stack* stack = nullptr;
  stemma_paged_tiers* tiers = nullptr;
  uint32_t stored = 0;
  stemma_status store_status = STEMMA_OK;
};

TEST_F(PagedTiersAbi, BlocksComeBackAfterARestart) {
  const std::vector<uint32_t> words = tokens(100).tokens;
  for (const How one : {How::at_once, How::deferred}) {
    how = one;
    start_all();
    const stemma_restored first = request(words);
    EXPECT_OK(store_status);
    EXPECT_EQ(first.restored_tokens, one == How::at_once ? 0U : 96U);
    EXPECT_EQ(stored, one == How::at_once ? 6U : 0U) << "what was found is not stored again";
    request(tokens(100, 2 + static_cast<uint32_t>(one)).tokens);
    EXPECT_EQ(stored, 6U);
    stop();
  }
  start_all();
  const stemma_restored again = request(words);
  EXPECT_EQ(again.restored_tokens, 96U);
  EXPECT_EQ(again.level_tokens[0] + again.level_tokens[1], 96U);
  EXPECT_EQ(again.cached_tokens, 0U);
  EXPECT_EQ(request(words).cached_tokens, 96U);  // Now the cache has them.
}

TEST_F(PagedTiersAbi, WindowsAndCheckpointsComeBackToo) {
  stemma_group_options groups[3] = {STEMMA_GROUP_OPTIONS_INIT, STEMMA_GROUP_OPTIONS_INIT,
                                    STEMMA_GROUP_OPTIONS_INIT};
  for (stemma_group_options& one : groups) {
    one.capacity_blocks = 16;
    one.block_bytes = kBlockBytes;
  }
  groups[1].attention = STEMMA_ATTENTION_WINDOW;
  groups[1].window_tokens = 24;
  groups[2].attention = STEMMA_ATTENTION_RECURRENT;
  under.groups = groups;
  under.group_count = 3;
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prompt = c_prompt(words);
  stemma_lookup_options whole = STEMMA_LOOKUP_OPTIONS_INIT;
  whole.allow_copy = 0;
  stemma_lease_options leased = STEMMA_LEASE_OPTIONS_INIT;
  leased.lookup = &whole;
  for (int life = 0; life < 2; ++life) {
    start_all();
    stemma_restored restored{};
    ASSERT_OK(stemma_paged_tiers_restore(tiers, cache, &scope, &prompt, &leased, &restored));
    EXPECT_EQ(restored.restored_tokens, life == 0 ? 0U : 64U);
    stemma_lease lease = 0;
    ASSERT_OK(stemma_cache_lease(cache, &scope, &prompt, &leased, &lease));
    if (restored.hold != 0) {
      ASSERT_OK(stemma_lease_release(restored.hold, nullptr));
    }
    stemma_positions place{};
    ASSERT_OK(stemma_lease_positions(lease, &place));
    ASSERT_EQ(place.reused, restored.restored_tokens);
    for (uint32_t g = 0; g < 2; ++g) {
      uint32_t table[16] = {}, count = 0;
      ASSERT_OK(stemma_lease_block_table(lease, g, table, 16, STEMMA_NO_BLOCK, &count));
      for (uint32_t b = 0; b < count; ++b) {
        const bool behind = g == 1 && place.reused == 64 && b < 2;  // [40, 64) is the window.
        ASSERT_EQ(table[b] == STEMMA_NO_BLOCK, behind) << g << ' ' << b;
        if (behind) continue;
        const auto stamp = static_cast<uint8_t>(b * 7 + g);
        if (b < place.reused / 16) {
          EXPECT_EQ(at(table[b], g)[kBlockBytes - 1], stamp) << g << ' ' << b;
        }
        std::memset(at(table[b], g), stamp, kBlockBytes);
      }
    }
    uint32_t depth = 0, slot = 0;
    if (place.reused == 64) {
      stemma_block_copy copy{};
      size_t count = 0;
      ASSERT_OK(stemma_lease_copies(lease, &copy, 1, &count));
      ASSERT_EQ(count, 1U);
      EXPECT_EQ(at(copy.source, 2)[kBlockBytes - 1], 64U);
      ASSERT_OK(stemma_lease_copies_done(lease));
    } else {
      ASSERT_OK(stemma_lease_commit(lease, 64, nullptr));
      ASSERT_OK(stemma_lease_draft_checkpoint(lease, 2, &slot));
      std::memset(at(slot, 2), 64, kBlockBytes);
      ASSERT_OK(stemma_lease_commit_checkpoint(lease, 2, 64));
    }
    ASSERT_OK(stemma_lease_hold_checkpoint(lease, 2, 100, &depth, &slot));
    EXPECT_EQ(depth, 64U);
    EXPECT_EQ(at(slot, 2)[0], 64U);
    EXPECT_REFUSED(STEMMA_UNSUPPORTED, "recurrent", stemma_lease_hold_checkpoint, lease, 1, 100,
                   &depth, &slot);
    uint32_t count = 0;
    ASSERT_OK(stemma_paged_tiers_store(tiers, &scope, &prompt, lease, 0, 50, &count));
    EXPECT_EQ(count, life == 0 ? 4U + 2U + 1U : 0U) << "what was found there is there";
    ASSERT_OK(stemma_lease_commit(lease, place.length, nullptr));
    ASSERT_OK(stemma_paged_tiers_store(tiers, &scope, &prompt, lease, 64, 50, &count));
    ASSERT_OK(stemma_lease_release(lease, nullptr));
    stop();
  }
}

TEST_F(PagedTiersAbi, ReadsThatFailStoreNothingAndSaySo) {
  how = How::failing;
  start_all();
  const std::vector<uint32_t> words = tokens(100).tokens;
  request(words);
  EXPECT_EQ(store_status, STEMMA_COPY_FAILED);
  EXPECT_EQ(stored, 0U);
  stop();
  how = How::at_once;
  start_all();
  EXPECT_EQ(request(words).restored_tokens, 0U);
}

TEST_F(PagedTiersAbi, AForgottenScopeDoesNotComeBack) {
  const std::vector<uint32_t> words = tokens(100).tokens;
  const std::vector<uint32_t> first(words.begin(), words.begin() + 40);
  const stemma_prompt prefix = c_prompt(first);
  for (const bool sealed : {false, true}) {
    path = directory / (sealed ? "sealed" : "plain");
    keys = sealed ? directory / "keys" : "";
    start_all();
    request(words);
    ASSERT_OK(stemma_stack_flush(stack, kMinute, nullptr));
    stemma_level_purged levels[2] = {};
    for (stemma_level_purged& one : levels) one.struct_size = sizeof one;
    uint32_t complete = 0;
    // First everything deeper than the prefix, then all of it.
    ASSERT_OK(stemma_paged_tiers_forget(tiers, &scope, &prefix, kMinute, drop, this, levels, 2,
                                        &complete));
    EXPECT_EQ(complete, 1U) << levels[0].error << levels[1].error;
    EXPECT_STREQ(levels[1].name, "disk");
    EXPECT_EQ(levels[1].entries, 4U);
    EXPECT_EQ(levels[1].bytes, 4U * kBlockBytes);
    EXPECT_EQ(request(words).restored_tokens, 32U);
    ASSERT_OK(stemma_stack_flush(stack, kMinute, nullptr));
    EXPECT_EQ(std::filesystem::exists(directory / "keys") &&
                  !std::filesystem::is_empty(directory / "keys"),
              sealed);
    ASSERT_OK(stemma_paged_tiers_forget(tiers, &scope, nullptr, kMinute, drop, this, levels, 2,
                                        &complete));
    EXPECT_EQ(complete, 1U);
    EXPECT_EQ(levels[0].entries, 6U);
    EXPECT_TRUE(!sealed || std::filesystem::is_empty(directory / "keys")) << "nor does its key";
    EXPECT_EQ(request(words).restored_tokens, 0U);
    ASSERT_OK(stemma_stack_flush(stack, kMinute, nullptr));
    ASSERT_OK(stemma_paged_tiers_forget(tiers, nullptr, nullptr, kMinute, drop, this, nullptr, 0,
                                        &complete));
    EXPECT_EQ(complete, 1U);
    EXPECT_EQ(request(words).restored_tokens, 0U);
    stop();
  }
}

TEST_F(PagedTiersAbi, WrongWaysToForgetAreNamed) {
  start_all();
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prefix = c_prompt(words);
  stemma_level_purged levels[2] = {};
  levels[0].struct_size = sizeof levels[0];
  uint32_t complete = 0;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "complete is null", stemma_paged_tiers_forget, tiers,
                 &scope, nullptr, 0, nullptr, nullptr, nullptr, 0, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "prefix is not null", stemma_paged_tiers_forget, tiers,
                 nullptr, &prefix, 0, nullptr, nullptr, nullptr, 0, &complete);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size", stemma_paged_tiers_forget, tiers, &scope,
                 nullptr, 0, nullptr, nullptr, levels, 2, &complete);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "tiers is null", stemma_paged_tiers_forget, nullptr,
                 &scope, nullptr, 0, nullptr, nullptr, nullptr, 0, &complete);
}

TEST_F(PagedTiersAbi, BadCallsAreNamed) {
  start();
  const auto refused_tiers = [&](stemma_status status, const char* culprit) {
    EXPECT_REFUSED(status, culprit, stemma_paged_tiers_create, stack, &under, &tiers);
  };
  under.io = nullptr;
  refused_tiers(STEMMA_INVALID_ARGUMENT, "io is null");
  under.io = &io;
  io.write = nullptr;
  refused_tiers(STEMMA_INVALID_ARGUMENT, "read and write");
  io.write = write_blocks;
  group.block_bytes = 0;
  refused_tiers(STEMMA_INVALID_ARGUMENT, "block_bytes");
  group.block_bytes = kBlockBytes;
  group.attention = STEMMA_ATTENTION_WINDOW;
  refused_tiers(STEMMA_INVALID_ARGUMENT, "window_tokens");
  group.attention = STEMMA_ATTENTION_FULL;
  under.keep_words = 2;
  refused_tiers(STEMMA_INVALID_ARGUMENT, "keep_words");
  under.keep_words = 0;
  ASSERT_OK(stemma_paged_tiers_create(stack, &under, &tiers));
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prompt = c_prompt(words);
  stemma_restored restored{};
  EXPECT_EQ(stemma_paged_tiers_restore(tiers, nullptr, &scope, &prompt, nullptr, &restored),
            STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error_message(), "stemma_cache_lookup: invalid_argument: cache is null");
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "prompt is null", stemma_paged_tiers_prefetch, tiers,
                 cache, &scope, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "priority", stemma_paged_tiers_store, tiers, &scope,
                 &prompt, 1, 0, 101, nullptr);
  EXPECT_EQ(stemma_paged_tiers_store(tiers, &scope, &prompt, 0, 0, 50, nullptr),
            STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error_message(), "stemma_lease_positions: invalid_argument: lease is 0");
}

TEST_F(PagedTiersAbi, AWriteBackLevelGetsWhatHasToGo) {
  write = STEMMA_WRITE_BACK;
  under.keep_words = 1;
  const std::vector<uint32_t> words = tokens(100).tokens;
  start_all();
  request(words);
  EXPECT_EQ(stored, 6U) << "in memory, where all is kept at once";
  EXPECT_OK(stemma_stack_flush(stack, kMinute, nullptr));
  stop();
  start_all();
  EXPECT_EQ(request(words).restored_tokens, 0U) << "the disk had nothing";
  uint32_t count = 0;
  EXPECT_OK(stemma_paged_tiers_make_room(tiers, cache, 16 * 58, &count));
  EXPECT_EQ(count, 0U) << "there is room";
  EXPECT_OK(stemma_paged_tiers_make_room(tiers, cache, UINT32_MAX, &count));
  EXPECT_EQ(count, 6U);
  EXPECT_EQ(stemma_paged_tiers_make_room(tiers, nullptr, 1, &count), STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error_message(),
               "stemma_cache_reclaim: invalid_argument: cache is null");
  stop();
  start_all();
  EXPECT_EQ(request(words).restored_tokens, 96U);
}

}  // namespace
}  // namespace stemma::test
