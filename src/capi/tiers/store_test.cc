// A store through the C ABI, as another engine's plug-in uses it: over every kind of level that
// needs no server, after kill -9, with a flipped byte on disk. What it refuses is in
// store_refusals_test.cc.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "stemma/stemma_store.h"
#include "support/c_cache.h"
#include "support/child_process.h"
#include "tiers/store_rig.h"

namespace stemma::test {
namespace {

class StoreContract : public StoreRig, public ::testing::WithParamInterface<StoreLevels> {
 protected:
  bool outlives() const { return GetParam().kinds.back() != STEMMA_LEVEL_HOST; }
  bool knows_at_once() const { return GetParam().kinds.front() != STEMMA_LEVEL_SHARED; }
};

TEST_P(StoreContract, WhatIsPutIsFoundTouchedReadAndRemoved) {
  open(GetParam());
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 100).done, 0U);
  for (const auto& one : results) EXPECT_EQ(one.status, uint32_t{STEMMA_ITEM_ABSENT});
  const stemma_store_finished put = run(STEMMA_STORE_PUT, 0, 100);
  EXPECT_EQ(put.done, 100U);
  EXPECT_EQ(put.bytes, 100 * kValue);
  const uint32_t all = (1U << GetParam().kinds.size()) - 1;
  for (const auto& one : results) EXPECT_EQ(one.levels, all);
  EXPECT_EQ(run(STEMMA_STORE_CONTAINS, 0, 101).leading, 100U);
  EXPECT_EQ(results[100].status, uint32_t{STEMMA_ITEM_ABSENT});
  if (knows_at_once() && !GetParam().sealed) {
    EXPECT_EQ(leading(0, 101), 100U);
    EXPECT_EQ(leading(100, 5), 0U);
  }
  EXPECT_EQ(run(STEMMA_STORE_TOUCH, 50, 60).done, 50U);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 100).done, 100U);
  expect_values(0, 100);
  EXPECT_EQ(run(STEMMA_STORE_REMOVE, 0, 50).done, 50U);
  const stemma_store_finished got = run(STEMMA_STORE_GET, 49, 51);
  EXPECT_EQ(got.done, 50U);
  EXPECT_EQ(got.leading, 0U);
  EXPECT_EQ(memory[0], std::vector<uint8_t>(kValue, 0xEE));
  EXPECT_EQ(run(STEMMA_STORE_REMOVE, 0, 50).done, 0U);
}

TEST_P(StoreContract, OtherNamesAndLayoutsAreMisses) {
  open(GetParam());
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 10).done, 10U);
  const uint32_t other_layout = name("test", 2, kValue), other_name = name("test2", 1, kValue);
  const uint32_t any_size = name("test", 1, 0);
  for (const uint32_t other : {other_layout, other_name, any_size}) {
    stemma_store_request request = ask(STEMMA_STORE_GET, 0, 10);
    request.name_space = other;
    request.value_size = kValue;
    stemma_batch batch = 0;
    uint32_t over = 0;
    stemma_store_finished finished{};
    EXPECT_OK(stemma_store_submit(store, &request, &batch));
    EXPECT_OK(stemma_store_wait(store, batch, kLong, &over, &finished));
    EXPECT_EQ(finished.done, 0U) << other;
    for (const auto& one : memory) EXPECT_EQ(one, std::vector<uint8_t>(kValue, 0xEE));
  }
  // Forgetting one layout leaves the other alone; forgetting the name takes both.
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 10, other_layout).done, 10U);
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 10, other_name).done, 10U);
  uint32_t complete = 0;
  EXPECT_OK(stemma_store_forget(store, space, 0, kLong, nullptr, 0, &complete));
  EXPECT_EQ(complete, 1U);
  EXPECT_EQ(run(STEMMA_STORE_CONTAINS, 0, 10).done, 0U);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 10, other_layout).done, 10U);
  EXPECT_OK(stemma_store_forget(store, space, 1, kLong, nullptr, 0, &complete));
  EXPECT_EQ(complete, 1U);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 10, other_layout).done, 0U);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 10, other_name).done, 10U);
}

TEST_P(StoreContract, AnotherProcessFindsItAndKill9LosesNothingThatWasDone) {
  if (!outlives()) GTEST_SKIP() << "this level ends with its process";
  const pid_t child = fork();
  if (child == 0) {
    open(GetParam());
    const bool good = store != nullptr && run(STEMMA_STORE_PUT, 0, 100).done == 100;
    if (good) raise(SIGKILL);
    _exit(1);
  }
  EXPECT_EQ(exit_code(child), 128 + SIGKILL);
  open(GetParam());
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 100).done, 100U);
  expect_values(0, 100);
}

TEST_P(StoreContract, CapacityIsNeverExceeded) {
  constexpr uint64_t kCapacity = 8U << 20U;
  open(GetParam(), kCapacity);
  for (uint32_t first = 0; first < 3000; first += 200) {
    run(STEMMA_STORE_PUT, first, 200);
    for (uint32_t l = 0; l < GetParam().kinds.size(); ++l) {
      stemma_level_stats level{};
      level.struct_size = sizeof level;
      ASSERT_OK(stemma_stack_level_stats(stack, l, &level));
      EXPECT_LE(level.used_bytes, kCapacity) << level.name;
    }
  }
  // The newest entries are there.
  EXPECT_GT(run(STEMMA_STORE_GET, 2900, 100).done, 90U);
  for (uint32_t i = 0; i < 100; ++i) {
    if (results[i].status != STEMMA_ITEM_DONE) continue;
    EXPECT_EQ(memory[i], value(2900 + i));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Levels, StoreContract,
    ::testing::Values(StoreLevels{"Host", {STEMMA_LEVEL_HOST}},
                      StoreLevels{"Disk", {STEMMA_LEVEL_DISK}},
                      StoreLevels{"Shared", {STEMMA_LEVEL_SHARED}},
                      StoreLevels{"HostDisk", {STEMMA_LEVEL_HOST, STEMMA_LEVEL_DISK}},
                      StoreLevels{"HostShared", {STEMMA_LEVEL_HOST, STEMMA_LEVEL_SHARED}},
                      StoreLevels{"SealedDisk", {STEMMA_LEVEL_DISK}, true}),
    [](const auto& one) { return std::string(one.param.name); });

// Flips a bit in the middle of a value, wherever it lies in a directory. Returns how many were
// flipped.
uint32_t damage(const std::string& directory, const std::vector<uint8_t>& wanted) {
  const std::string inside(wanted.begin() + 3000, wanted.begin() + 4000);
  uint32_t flipped = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const size_t at = bytes.find(inside);
    if (at == std::string::npos) continue;
    std::fstream out(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at + 500));
    out.put(static_cast<char>(bytes[at + 500] ^ 0x10));
    ++flipped;
  }
  return flipped;
}

TEST_F(StoreAbi, AFlippedByteOnDiskIsAMiss) {
  open({"", {STEMMA_LEVEL_DISK}});
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 20).done, 20U);
  close();
  ASSERT_EQ(damage(disk, value(7)), 1U);
  open({"", {STEMMA_LEVEL_DISK}});
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 20).done, 19U);
  for (uint32_t i = 0; i < 20; ++i) {
    const bool absent = results[i].status == STEMMA_ITEM_ABSENT;
    EXPECT_EQ(memory[i], absent ? std::vector<uint8_t>(kValue, 0xEE) : value(i)) << i;
  }
}

TEST_F(StoreAbi, ADiskThatIsScrubbedFindsDamageBeforeSomebodyAsks) {
  scrub = uint64_t{1} << 40U;
  open({"", {STEMMA_LEVEL_DISK}});
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 20).done, 20U);
  uint32_t durable = 0;
  ASSERT_OK(stemma_store_flush(store, kLong, &durable));
  ASSERT_EQ(damage(disk, value(7)), 1U);
  stemma_level_stats level{};
  level.struct_size = sizeof level;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
  do {
    std::this_thread::yield();
    ASSERT_OK(stemma_stack_level_stats(stack, 0, &level));
  } while (level.entries != 19 && std::chrono::steady_clock::now() < give_up);
  EXPECT_EQ(level.entries, 19U);
  EXPECT_LT(leading(0, 20), 20U);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 20).done, 19U);
}

TEST_F(StoreAbi, OnlyDisksAreScrubbedAndOlderCallersAskForNothing) {
  stemma_level level = STEMMA_LEVEL_INIT;
  level.capacity_bytes = 1U << 20U;
  level.scrub_bytes_per_second = 1;
  stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
  options.levels = &level;
  options.level_count = 1;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "only disks", stemma_stack_create, &options, &stack);
  level.struct_size = offsetof(stemma_level, scrub_bytes_per_second);
  EXPECT_OK(stemma_stack_create(&options, &stack));  // What lies beyond the struct is not read.
}

TEST_F(StoreAbi, KeysMayHaveEachALengthOfTheirOwnAndHintsChangeNoAnswer) {
  open({"", {STEMMA_LEVEL_HOST, STEMMA_LEVEL_DISK}});
  constexpr uint32_t kCount = 64;
  stemma_store_request request = ask(STEMMA_STORE_PUT, 0, kCount);
  std::vector<uint8_t> sizes(kCount), keys_of, parents, parent_sizes(kCount),
      priorities(kCount, 80);
  std::vector<uint32_t> depths(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    sizes[i] = static_cast<uint8_t>(i + 1);  // Each is a prefix of the next.
    keys_of.insert(keys_of.end(), i + 1, 0);
    depths[i] = kCount - i;
    parent_sizes[i] = static_cast<uint8_t>(i);
    parents.insert(parents.end(), i, 0);
  }
  request.keys = keys_of.data();
  request.key_sizes = sizes.data();
  request.key_size = 0;
  request.depths = depths.data();
  request.parents = parents.data();
  request.parent_sizes = parent_sizes.data();
  request.priorities = priorities.data();
  stemma_batch batch = 0;
  uint32_t over = 0;
  stemma_store_finished finished{};
  ASSERT_OK(stemma_store_submit(store, &request, &batch));
  ASSERT_OK(stemma_store_wait(store, batch, kLong, &over, &finished));
  EXPECT_EQ(finished.done, kCount);
  request = ask(STEMMA_STORE_GET, 0, kCount);
  request.keys = keys_of.data();
  request.key_sizes = sizes.data();
  ASSERT_OK(stemma_store_submit(store, &request, &batch));
  ASSERT_OK(stemma_store_wait(store, batch, kLong, &over, &finished));
  EXPECT_EQ(finished.leading, kCount);
  expect_values(0, kCount);
}

TEST_F(StoreAbi, BatchesAreDrainedOnceAndTheDescriptorSaysWhen) {
  open({"", {STEMMA_LEVEL_HOST}});
  int32_t fd = -1;
  ASSERT_OK(stemma_store_event_fd(store, &fd));
  stemma_store_request request = ask(STEMMA_STORE_PUT, 0, 10);
  request.results = nullptr;
  stemma_batch batches[4];
  for (stemma_batch& batch : batches) ASSERT_OK(stemma_store_submit(store, &request, &batch));
  std::vector<stemma_batch> named;
  while (named.size() < 4) {
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&one, 1, 60'000), 1);
    stemma_store_finished some[3];
    size_t count = 0;
    ASSERT_OK(stemma_store_drain(store, some, 3, &count));
    ASSERT_GT(count, 0U);
    for (size_t i = 0; i < count; ++i) named.push_back(some[i].batch);
  }
  std::sort(named.begin(), named.end());
  EXPECT_TRUE(std::equal(named.begin(), named.end(), batches));
  uint32_t over = 0;
  EXPECT_REFUSED(STEMMA_STALE, "named already", stemma_store_wait, store, batches[0], 0, &over,
                 nullptr);
  EXPECT_REFUSED(STEMMA_STALE, "named already", stemma_store_cancel, store, 999, nullptr);
}

TEST_F(StoreAbi, StatisticsSayWhatHappenedAsAStructAndAsJson) {
  open({"", {STEMMA_LEVEL_HOST, STEMMA_LEVEL_DISK}});
  run(STEMMA_STORE_PUT, 0, 5);
  run(STEMMA_STORE_GET, 0, 7);
  run(STEMMA_STORE_CONTAINS, 3, 4);
  run(STEMMA_STORE_TOUCH, 0, 1);
  run(STEMMA_STORE_REMOVE, 0, 2);
  leading(0, 5);
  const stemma_store_stats now = stats();
  EXPECT_EQ(now.namespaces, 1U);
  EXPECT_EQ(now.batches, 5U);
  EXPECT_EQ(now.batches_waiting, 0U);
  EXPECT_EQ(now.batches_ended, 0U);
  EXPECT_EQ(now.items_waiting, 0U);
  EXPECT_EQ(now.puts, 5U);
  EXPECT_EQ(now.put_bytes, 5 * kValue);
  EXPECT_EQ(now.gets, 5U);
  EXPECT_EQ(now.get_bytes, 5 * kValue);
  EXPECT_EQ(now.found, 2U);
  EXPECT_EQ(now.touched, 1U);
  EXPECT_EQ(now.removed, 2U);
  EXPECT_EQ(now.absent, 4U);
  EXPECT_EQ(now.lookups, 5U);
  EXPECT_EQ(now.lookup_found, 3U);
  const std::string text = stats_text();
  EXPECT_TRUE(text.starts_with("{\"batches\":5,")) << text;
  EXPECT_NE(text.find("\"levels\":[{\"name\":\"host\","), std::string::npos) << text;
  EXPECT_NE(text.find("\"namespaces\":[{\"name\":\"test\",\"layout\":\"0000000000000001\","
                      "\"value_bytes\":8192}]}"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace stemma::test
