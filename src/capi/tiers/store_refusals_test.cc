// Wrong calls of a store through the C ABI, and calls after its end, during it and after fork(): each
// gets a status and starts nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "stemma/stemma_store.h"
#include "support/c_cache.h"
#include "support/child_process.h"
#include "tiers/store_rig.h"

namespace stemma::test {
namespace {

TEST_F(StoreAbi, WrongRequestsAreRefusedAndStartNothing) {
  open({"", {STEMMA_LEVEL_HOST}});
  stemma_batch batch = 77;
  const auto expect = [&](const char* culprit, const stemma_store_request& request) {
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, culprit, stemma_store_submit, store, &request, &batch);
    EXPECT_EQ(batch, 77U);
  };
  const auto with = [&](auto change, uint32_t op = STEMMA_STORE_PUT) {
    stemma_store_request request = ask(op, 0, 3);
    change(request);
    return request;
  };
  using Request = stemma_store_request;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "request is null", stemma_store_submit, store, nullptr,
                 &batch);
  const Request good = ask(STEMMA_STORE_PUT, 0, 3);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_submit, store, &good,
                 nullptr);
  expect("struct_size", with([](Request& r) { r.struct_size = 8; }));
  expect("stemma_store_op", with([](Request& r) { r.op = 5; }));
  expect("name_space", with([](Request& r) { r.name_space = 9; }));
  expect("count is 0", with([](Request& r) { r.count = 0; }));
  expect("MOST_ITEMS", with([](Request& r) { r.count = STEMMA_STORE_MOST_ITEMS + 1; }));
  expect("keys is null", with([](Request& r) { r.keys = nullptr; }));
  expect("key_size", with([](Request& r) { r.key_size = 0; }));
  expect("key_size", with([](Request& r) { r.key_size = 65; }));
  const uint8_t long_keys[3] = {1, 65, 1}, no_key[3] = {1, 1, 0};
  expect("size of this key", with([&](Request& r) { r.key_sizes = long_keys; }));
  EXPECT_EQ(stemma_last_error_value(), 1U);
  expect("size of this key", with([&](Request& r) { r.key_sizes = no_key; }));
  EXPECT_EQ(stemma_last_error_value(), 2U);
  expect("values is null", with([](Request& r) { r.values = nullptr; }));
  void* const holes[3] = {memory[0].data(), nullptr, memory[2].data()};
  expect("value is null", with([&](Request& r) { r.values = holes; }));
  expect("value is null", with([&](Request& r) { r.values = holes; }, STEMMA_STORE_GET));
  expect("not as large", with([](Request& r) { r.value_size = kValue + 1; }));
  expect("not as large", with([](Request& r) { r.value_size = kValue - 1; }));
  expect("less room", with([](Request& r) { r.value_size = kValue - 1; }, STEMMA_STORE_GET));
  const uint64_t some_sizes[3] = {kValue, kValue, 0};
  expect("0 bytes", with([&](Request& r) { r.value_sizes = some_sizes; }));
  const uint32_t any = name("any", 0, 0);
  expect("0 bytes", with([&](Request& r) { r.name_space = any; }));
  expect("4 GiB", with([&](Request& r) { r.name_space = any, r.value_size = UINT64_MAX; }));
  expect("priority", with([](Request& r) { r.priority = 101; }));
  const uint8_t wrong_priorities[3] = {0, 100, 101};
  expect("priority", with([&](Request& r) { r.priorities = wrong_priorities; }));
  const uint32_t deep[3] = {0, 1U << 30U, 0};
  expect("depth", with([&](Request& r) { r.depths = deep; }));
  expect("parent_sizes", with([&](Request& r) { r.parents = key_bytes.data(); }));
  const uint8_t long_parents[3] = {0, 0, 65};
  expect("parent", with([&](Request& r) {
           r.parents = key_bytes.data();
           r.parent_sizes = long_parents;
         }));
  EXPECT_EQ(stats().batches, 0U);
  EXPECT_EQ(run(STEMMA_STORE_CONTAINS, 0, 3).done, 0U);
}

TEST_F(StoreAbi, OtherCallsRefuseWhatIsWrong) {
  open({"", {STEMMA_LEVEL_HOST}});
  stemma_store* other = nullptr;
  stemma_store_options options = STEMMA_STORE_OPTIONS_INIT;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_create, stack, &options,
                 nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "stack is null", stemma_store_create, nullptr, &options,
                 &other);
  options.load_threads = 0;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "load_threads", stemma_store_create, stack, &options,
                 &other);
  options = STEMMA_STORE_OPTIONS_INIT;
  options.reserved = 1;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "reserved", stemma_store_create, stack, &options, &other);
  uint32_t number = 0;
  stemma_store_layout layout = STEMMA_STORE_LAYOUT_INIT;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "name is null", stemma_store_namespace, store, nullptr,
                 &layout, &number);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "1 to 64 characters", stemma_store_namespace, store,
                 "a b", &layout, &number);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_namespace, store, "a",
                 &layout, nullptr);
  layout.value_bytes = UINT64_MAX;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "4 GiB", stemma_store_namespace, store, "a", &layout,
                 &number);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_event_fd, store, nullptr);
  size_t count = 0;
  stemma_store_finished finished{};
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "count is null", stemma_store_drain, store, &finished, 1,
                 nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_drain, store, nullptr, 1,
                 &count);
  EXPECT_OK(stemma_store_drain(store, nullptr, 0, &count));
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "over is null", stemma_store_wait, store, 1, 0, nullptr,
                 nullptr);
  uint8_t key[64] = {}, levels[1] = {};
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "levels and leading", stemma_store_lookup, store, space,
                 key, nullptr, 64, 1, nullptr, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "count is 0", stemma_store_lookup, store, space, key,
                 nullptr, 64, 0, levels, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "name_space", stemma_store_lookup, store, 5, key, nullptr,
                 64, 1, levels, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "keys is null", stemma_store_lookup, store, space,
                 nullptr, nullptr, 64, 1, levels, nullptr);
  uint32_t complete = 0;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "all_layouts", stemma_store_forget, store, space, 2,
                 kLong, nullptr, 0, &complete);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "complete is null", stemma_store_forget, store, space, 0,
                 kLong, nullptr, 0, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "name_space", stemma_store_forget, store, 5, 0, kLong,
                 nullptr, 0, &complete);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_store_stats_read, store, nullptr);
  stemma_store_stats wrong{};
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "struct_size", stemma_store_stats_read, store, &wrong);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "count is null", stemma_store_stats_json, store, nullptr,
                 0, nullptr);
  char small[4];
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "capacity", stemma_store_stats_json, store, small, 4, &count);
  EXPECT_OK(stemma_store_flush(store, kLong, nullptr));
  EXPECT_REFUSED(STEMMA_BUSY, "use this stack", stemma_stack_destroy, stack);
}

TEST_F(StoreAbi, AfterDestroyEveryCallSaysSo) {
  open({"", {STEMMA_LEVEL_HOST}});
  stemma_store* const gone = store;
  const stemma_store_request request = ask(STEMMA_STORE_PUT, 0, 1);
  EXPECT_OK(stemma_store_destroy(store, kLong));
  store = nullptr;
  stemma_batch batch = 0;
  uint32_t number = 0;
  int32_t fd = 0;
  size_t count = 0;
  uint8_t levels[1];
  stemma_store_finished finished{};
  stemma_store_stats out{};
  out.struct_size = sizeof out;
  const stemma_store_layout layout = STEMMA_STORE_LAYOUT_INIT;
  EXPECT_EQ(stemma_store_destroy(gone, 0), STEMMA_STALE);
  EXPECT_EQ(stemma_store_submit(gone, &request, &batch), STEMMA_STALE);
  EXPECT_EQ(stemma_store_namespace(gone, "a", &layout, &number), STEMMA_STALE);
  EXPECT_EQ(stemma_store_event_fd(gone, &fd), STEMMA_STALE);
  EXPECT_EQ(stemma_store_drain(gone, &finished, 1, &count), STEMMA_STALE);
  EXPECT_EQ(stemma_store_wait(gone, 1, 0, &number, nullptr), STEMMA_STALE);
  EXPECT_EQ(stemma_store_cancel(gone, 1, nullptr), STEMMA_STALE);
  EXPECT_EQ(stemma_store_lookup(gone, 0, request.keys, nullptr, kKey, 1, levels, nullptr),
            STEMMA_STALE);
  EXPECT_EQ(stemma_store_forget(gone, 0, 0, 0, nullptr, 0, &number), STEMMA_STALE);
  EXPECT_EQ(stemma_store_flush(gone, 0, nullptr), STEMMA_STALE);
  EXPECT_EQ(stemma_store_stats_read(gone, &out), STEMMA_STALE);
  EXPECT_EQ(stemma_store_stats_json(gone, nullptr, 0, &count), STEMMA_STALE);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "store is null", stemma_store_flush, nullptr, 0, nullptr);
  auto* const foreign = reinterpret_cast<stemma_store*>(this);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "no stemma_store", stemma_store_flush, foreign, 0,
                 nullptr);
}

TEST_F(StoreAbi, ItMayBeDestroyedWhileOthersUseIt) {
  open({"", {STEMMA_LEVEL_HOST}});
  std::atomic<uint32_t> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      uint8_t key[8] = {static_cast<uint8_t>(t)};
      stemma_store_request request = STEMMA_STORE_REQUEST_INIT;
      request.op = STEMMA_STORE_CONTAINS;
      request.name_space = space;
      request.count = 1;
      request.keys = key;
      request.key_size = 8;
      stemma_status status = STEMMA_OK;
      bool counted = false;
      while (status == STEMMA_OK) {
        stemma_batch batch = 0;
        uint32_t over = 0;
        status = stemma_store_submit(store, &request, &batch);
        if (status == STEMMA_OK) status = stemma_store_wait(store, batch, kLong, &over, nullptr);
        if (!counted) ready.fetch_add(1);
        counted = true;
      }
      EXPECT_EQ(status, STEMMA_STALE);
    });
  }
  while (ready.load() != 3) std::this_thread::yield();
  stemma_store* const handle = store;
  EXPECT_OK(stemma_store_destroy(handle, kLong));
  for (std::thread& thread : threads) thread.join();
  store = nullptr;
}

TEST_F(StoreAbi, AChildAfterForkGetsAnErrorAndCanOpenOneOfItsOwn) {
  open({"", {STEMMA_LEVEL_DISK}});
  EXPECT_EQ(run(STEMMA_STORE_PUT, 0, 3).done, 3U);
  const stemma_store_request request = ask(STEMMA_STORE_GET, 0, 3);
  const pid_t child = fork();
  if (child == 0) {
    stemma_batch batch = 0;
    uint32_t over = 0, leading = 0;
    size_t count = 0;
    stemma_store* second = nullptr;
    const bool refused = stemma_store_submit(store, &request, &batch) == STEMMA_WRONG_STATE &&
                         stemma_store_wait(store, 1, kLong, &over, nullptr) == STEMMA_WRONG_STATE &&
                         stemma_store_cancel(store, 1, nullptr) == STEMMA_WRONG_STATE &&
                         stemma_store_drain(store, nullptr, 0, &count) == STEMMA_WRONG_STATE &&
                         stemma_store_lookup(store, space, request.keys, nullptr, kKey, 1, nullptr,
                                             &leading) == STEMMA_WRONG_STATE &&
                         stemma_store_flush(store, kLong, nullptr) == STEMMA_WRONG_STATE &&
                         stemma_store_destroy(store, kLong) == STEMMA_WRONG_STATE &&
                         stemma_store_create(stack, nullptr, &second) == STEMMA_WRONG_STATE &&
                         stemma_stack_flush(stack, kLong, nullptr) == STEMMA_WRONG_STATE &&
                         stemma_stack_destroy(stack) == STEMMA_WRONG_STATE;
    if (!refused) _exit(1);
#if defined(__SANITIZE_THREAD__) || defined(STEMMA_TSAN)
    _exit(0);  // TSan ends a child that starts threads, if its parent had some.
#endif
    // A store of the child's own, in another place.
    stemma_level level = STEMMA_LEVEL_INIT;
    level.capacity_bytes = 4U << 20U;
    stemma_stack_options options = STEMMA_STACK_OPTIONS_INIT;
    options.levels = &level;
    options.level_count = 1;
    stemma_stack* own = nullptr;
    if (stemma_stack_create(&options, &own) != STEMMA_OK) _exit(2);
    if (stemma_store_create(own, nullptr, &second) != STEMMA_OK) _exit(3);
    store = second;
    space = name("test", 1, kValue);
    _exit(run(STEMMA_STORE_PUT, 0, 3).done == 3 ? 0 : 4);
  }
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(run(STEMMA_STORE_GET, 0, 3).done, 3U);
}

}  // namespace
}  // namespace stemma::test
