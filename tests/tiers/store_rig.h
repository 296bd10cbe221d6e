// A stack and a store over levels in a directory of their own, through the C ABI.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/stemma_store.h"
#include "support/c_cache.h"
#include "support/temporary_directory.h"

namespace stemma::test {

struct StoreLevels {
  const char* name;
  std::vector<uint32_t> kinds;
  bool sealed = false;
};

class StoreRig : public ::testing::Test {
 protected:
  static constexpr uint64_t kLong = 60'000'000'000;
  static constexpr uint32_t kKey = 36;  // vLLM's: a SHA-256 and the number of a group.
  static constexpr uint64_t kValue = 8192;

  static std::vector<uint8_t> value(uint32_t i, size_t size = kValue) {
    std::vector<uint8_t> bytes(size);
    for (size_t at = 0; at < size; ++at)
      bytes[at] = static_cast<uint8_t>(i * 131 + at * 7 + at / 256);
    return bytes;
  }

  void open(const StoreLevels& what, uint64_t capacity = 64U << 20U) {
    std::vector<stemma_level> levels;
    for (const uint32_t kind : what.kinds) {
      stemma_level level = STEMMA_LEVEL_INIT;
      level.kind = kind;
      level.capacity_bytes = capacity;
      if (kind != STEMMA_LEVEL_HOST) level.max_entry_bytes = 256U << 10U;
      if (kind == STEMMA_LEVEL_DISK) level.where = disk.c_str();
      if (kind == STEMMA_LEVEL_SHARED) level.where = shared.c_str();
      if (kind == STEMMA_LEVEL_DISK) level.scrub_bytes_per_second = scrub;
      if (what.sealed && kind != STEMMA_LEVEL_HOST) level.seal_keys = keys.c_str();
      levels.push_back(level);
    }
    stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
    options.levels = levels.data();
    options.level_count = levels.size();
    options.query_ns = options.load_ns = options.store_ns = kLong;
    ASSERT_OK(stemma_stack_create(&options, &stack));
    stemma_store_options with = STEMMA_STORE_OPTIONS_INIT;
    with.timeout_ns = kLong;
    ASSERT_OK(stemma_store_create(stack, &with, &store));
    space = name("test", 1, kValue);
  }
  uint32_t name(const char* text, uint64_t layout, uint64_t bytes) {
    stemma_store_layout how = STEMMA_STORE_LAYOUT_INIT;
    how.layout = layout;
    how.value_bytes = bytes;
    uint32_t number = UINT32_MAX;
    EXPECT_OK(stemma_store_namespace(store, text, &how, &number));
    return number;
  }
  void close() {
    if (store != nullptr) {
      EXPECT_OK(stemma_store_destroy(store, kLong));
    }
    if (stack != nullptr) {
      EXPECT_OK(stemma_stack_destroy(stack));
    }
    store = nullptr;
    stack = nullptr;
  }
  void TearDown() override { close(); }

  // A batch of keys [first, first + count), submitted and waited for.
  stemma_store_finished run(uint32_t op, uint32_t first, uint32_t count, uint32_t in = UINT32_MAX) {
    stemma_store_request request = ask(op, first, count);
    if (in != UINT32_MAX) request.name_space = in;
    stemma_batch batch = 0;
    stemma_store_finished finished{};
    uint32_t over = 0;
    EXPECT_OK(stemma_store_submit(store, &request, &batch));
    EXPECT_OK(stemma_store_wait(store, batch, 10 * kLong, &over, &finished));
    EXPECT_EQ(over, 1U);
    EXPECT_EQ(finished.batch, batch);
    EXPECT_EQ(finished.count, count);
    return finished;
  }
  stemma_store_request ask(uint32_t op, uint32_t first, uint32_t count) {
    key_bytes.clear();
    memory.clear();
    pointers.clear();
    results.assign(count, {});
    for (uint32_t i = first; i < first + count; ++i) {
      for (uint32_t b = 0; b < kKey; ++b)
        key_bytes.push_back(static_cast<uint8_t>(i >> (b % 4 * 8)));
      memory.push_back(op == STEMMA_STORE_PUT ? value(i) : std::vector<uint8_t>(kValue, 0xEE));
      pointers.push_back(memory.back().data());
    }
    stemma_store_request request = STEMMA_STORE_REQUEST_INIT;
    request.op = op;
    request.name_space = space;
    request.count = count;
    request.keys = key_bytes.data();
    request.key_size = kKey;
    request.values = pointers.data();
    request.results = results.data();
    request.user = first;
    return request;
  }
  uint32_t leading(uint32_t first, uint32_t count) {
    const stemma_store_request request = ask(STEMMA_STORE_CONTAINS, first, count);
    uint32_t there = UINT32_MAX;
    EXPECT_OK(
        stemma_store_lookup(store, space, request.keys, nullptr, kKey, count, nullptr, &there));
    return there;
  }
  void expect_values(uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) EXPECT_EQ(memory[i], value(first + i)) << first + i;
  }
  std::string stats_text() {
    size_t size = 0;
    EXPECT_OK(stemma_store_stats_json(store, nullptr, 0, &size));
    std::string text(size + 64, '\0');  // The numbers may have grown.
    EXPECT_OK(stemma_store_stats_json(store, text.data(), text.size(), &size));
    text.resize(size);
    return text;
  }
  stemma_store_stats stats() {
    stemma_store_stats out{};
    out.struct_size = sizeof out;
    EXPECT_OK(stemma_store_stats_read(store, &out));
    return out;
  }

  TemporaryDirectory directory;
  std::string disk = directory / "disk", shared = directory / "shared", keys = directory / "keys";
  stemma_stack* stack = nullptr;
  stemma_store* store = nullptr;
  uint32_t space = 0;
  uint64_t scrub = 0;  // Bytes per second, of the disk that open() makes.
  std::vector<uint8_t> key_bytes;
  std::vector<std::vector<uint8_t>> memory;
  std::vector<void*> pointers;
  std::vector<stemma_store_result> results;
};

class StoreAbi : public StoreRig {};

}  // namespace stemma::test
