// What the library calls, and when: transfers, fences, the clock, `closed`, log lines, events.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/c_cache.h"

namespace stemma::test {
namespace {

class Callbacks : public CapiFixture {};

// An engine that ends its transfers when the test tells it to.
struct Mover {
  enum class How : uint8_t { at_once, on_another_thread, twice, failing } how = How::at_once;
  std::vector<stemma_block_copy> seen;
  std::thread worker;
  stemma_status second = STEMMA_OK;
  stemma_lease reenter = 0;
  stemma_status reentered = STEMMA_OK;

  static void copy(void* user, stemma_io io, const stemma_block_copy* copies, size_t count) {
    auto& self = *static_cast<Mover*>(user);
    self.seen.assign(copies, copies + count);
    if (self.reenter != 0) self.reentered = stemma_lease_copies_done(self.reenter);
    switch (self.how) {
      case How::at_once: EXPECT_OK(stemma_io_done(io, STEMMA_OK)); break;
      case How::on_another_thread:
        self.worker = std::thread([io] { EXPECT_OK(stemma_io_done(io, STEMMA_OK)); });
        break;
      case How::twice:
        EXPECT_OK(stemma_io_done(io, STEMMA_OK));
        self.second = stemma_io_done(io, STEMMA_OK);
        break;
      case How::failing: EXPECT_OK(stemma_io_done(io, STEMMA_CORRUPT)); break;
    }
  }
};

TEST_F(Callbacks, CopiesRunThroughTheEngine) {
  Mover mover;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  io.user = &mover;
  io.copy = Mover::copy;
  options.block_io = &io;
  create();
  io.copy = nullptr;  // It was copied.
  const std::vector<uint32_t> words = tokens(40).tokens;
  fill(words);
  for (const auto how : {Mover::How::at_once, Mover::How::on_another_thread, Mover::How::twice}) {
    mover.how = how;
    const stemma_lease lease = take(words);
    EXPECT_OK(stemma_lease_run_copies(lease));
    if (mover.worker.joinable()) mover.worker.join();
    ASSERT_EQ(mover.seen.size(), 1U);
    EXPECT_EQ(mover.seen[0].tokens, 7U);
    stemma_positions at{};
    EXPECT_OK(stemma_lease_positions(lease, &at));
    EXPECT_EQ(at.reused, 39U);
    EXPECT_OK(stemma_lease_abandon(lease, nullptr));
  }
  EXPECT_EQ(mover.second, STEMMA_STALE);
}

TEST_F(Callbacks, FailedCopyStepsBackAndSaysSo) {
  Mover mover;
  mover.how = Mover::How::failing;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  io.user = &mover;
  io.copy = Mover::copy;
  options.block_io = &io;
  create();
  const std::vector<uint32_t> words = tokens(40).tokens;
  fill(words);
  const stemma_lease lease = take(words);
  EXPECT_REFUSED(STEMMA_COPY_FAILED, "stepped back", stemma_lease_run_copies, lease);
  stemma_report report = STEMMA_REPORT_INIT;
  EXPECT_OK(stemma_lease_report(lease, &report));
  EXPECT_EQ(report.reused_tokens, 32U);
  EXPECT_OK(stemma_lease_release(lease, nullptr));
}

TEST_F(Callbacks, LeaseIsBusyInsideItsOwnTransfer) {
  Mover mover;
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  io.user = &mover;
  io.copy = Mover::copy;
  options.block_io = &io;
  create();
  const std::vector<uint32_t> words = tokens(40).tokens;
  fill(words);
  mover.reenter = take(words);
  EXPECT_OK(stemma_lease_run_copies(mover.reenter));
  EXPECT_EQ(mover.reentered, STEMMA_BUSY);
  EXPECT_OK(stemma_lease_release(mover.reenter, nullptr));
}

TEST_F(Callbacks, TransfersAreKnownByTheirNumber) {
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "io is 0", stemma_io_done, 0, STEMMA_OK);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "no such transfer", stemma_io_done, ~uint64_t{0},
                 STEMMA_OK);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "outcome", stemma_io_done, 1, 99);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "outcome", stemma_io_done, 1, -1);
}

struct Gate {
  bool open = false;
  int asked = 0;
  static int32_t signalled(void* user) {
    auto& self = *static_cast<Gate*>(user);
    ++self.asked;
    return self.open ? 1 : 0;
  }
};

TEST_F(Callbacks, FenceHoldsBlocksUntilItSignalsAndIsNotAskedAgain) {
  create();
  Gate gate;
  const stemma_fence fence{Gate::signalled, &gate};
  stemma_release_options ending = STEMMA_RELEASE_OPTIONS_INIT;
  ending.fence = &fence;
  for (int round = 0; round < 3; ++round) {
    gate = {};
    const stemma_lease lease = take(tokens(40).tokens);
    ASSERT_OK(round == 1 ? stemma_lease_abandon(lease, &fence)
                         : stemma_lease_release(lease, &ending));
    EXPECT_REFUSED(STEMMA_STALE, "released", stemma_lease_release, lease, nullptr);
    uint32_t settled = 9;
    EXPECT_OK(stemma_cache_poll(cache, &settled));
    EXPECT_EQ(settled, 0U);
    EXPECT_EQ(stats().leases, 1U);
    gate.open = true;
    EXPECT_OK(stemma_cache_poll(cache, &settled));
    EXPECT_EQ(settled, 1U);
    EXPECT_EQ(stats().leases, 0U);
    const int asked = gate.asked;
    EXPECT_OK(stemma_cache_poll(cache, &settled));
    EXPECT_EQ(gate.asked, asked);
  }
}

TEST_F(Callbacks, SignalledFenceIsAskedOnce) {
  create();
  Gate gate{.open = true};
  const stemma_fence fence{Gate::signalled, &gate};
  ASSERT_OK(stemma_lease_abandon(take(tokens(40).tokens), &fence));
  EXPECT_EQ(gate.asked, 1);
  EXPECT_EQ(stats().leases, 0U);
}

TEST_F(Callbacks, WaitingFenceDoesNotKeepACacheAlive) {
  create();
  Gate gate;
  const stemma_fence fence{Gate::signalled, &gate};
  ASSERT_OK(stemma_lease_abandon(take(tokens(40).tokens), &fence));
  const int asked = gate.asked;
  EXPECT_OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  EXPECT_EQ(gate.asked, asked);
  cache = nullptr;
}

TEST_F(Callbacks, FenceOfAReleaseThatWasRefusedIsForgotten) {
  create();
  Gate gate;
  const stemma_fence fence{Gate::signalled, &gate};
  stemma_retain retain = STEMMA_RETAIN_INIT;
  retain.priority = 101;
  stemma_release_options ending = STEMMA_RELEASE_OPTIONS_INIT;
  ending.fence = &fence;
  ending.retain = &retain;
  const stemma_lease lease = take(tokens(40).tokens);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "priority", stemma_lease_release, lease, &ending);
  EXPECT_OK(stemma_lease_release(lease, nullptr));
  EXPECT_EQ(stats().leases, 0U);
}

TEST_F(Callbacks, ClockDecidesWhenAPinEnds) {
  static std::atomic<uint64_t> now;  // The cache reads it until it is destroyed, after the test.
  now = 1000;
  options.clock = {[](void* user) { return static_cast<std::atomic<uint64_t>*>(user)->load(); },
                   &now};
  create();
  const std::vector<uint32_t> words = tokens(64).tokens;
  fill(words);
  const stemma_prompt prompt = c_prompt(words);
  stemma_pin pin{};
  ASSERT_OK(stemma_cache_pin(cache, &scope, &prompt, 500, &pin));
  EXPECT_EQ(pin.pinned_tokens, 64U);
  uint32_t evicted = 9;
  EXPECT_OK(stemma_cache_evict(cache, 4, &evicted));
  EXPECT_EQ(evicted, 0U);
  now = 2000;
  EXPECT_OK(stemma_cache_evict(cache, 4, &evicted));
  EXPECT_EQ(evicted, 4U);
  EXPECT_REFUSED(STEMMA_STALE, "", stemma_cache_unpin, cache, pin.id);
}

TEST_F(Callbacks, ClosedIsCalledOnceAfterTheLastLease) {
  int closed = 0;
  options.closed = [](void* user) { ++*static_cast<int*>(user); };
  options.closed_user = &closed;
  create();
  const stemma_lease lease = take(tokens(20).tokens);
  stemma_lease fork = 0;
  ASSERT_OK(stemma_lease_commit(lease, 20, nullptr));
  ASSERT_OK(stemma_lease_fork(lease, &fork));
  ASSERT_OK(stemma_cache_destroy(cache, STEMMA_ON_BUSY_DEFER));
  ASSERT_OK(stemma_lease_release(lease, nullptr));
  EXPECT_EQ(closed, 0);
  ASSERT_OK(stemma_lease_abandon(fork, nullptr));
  EXPECT_EQ(closed, 1);
  // A cache that could not be created makes no calls.
  group.block_tokens = 3;
  EXPECT_EQ(stemma_cache_create(&options, &cache), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(closed, 1);
  cache = nullptr;
}

TEST_F(Callbacks, EventsComeWithKeysAndWords) {
  options.event_capacity = 16;
  create();
  fill(tokens(40).tokens);
  struct Seen {
    size_t keys = 0, words = 0, events = 0;
    std::string first;
  } seen;
  const auto each = [](void* user, const stemma_event* event) {
    auto& to = *static_cast<Seen*>(user);
    EXPECT_EQ(event->struct_size, sizeof *event);
    EXPECT_EQ(event->kind, static_cast<uint32_t>(STEMMA_EVENT_STORED));
    EXPECT_EQ(event->block_tokens, 16U);
    char hex[65];
    EXPECT_OK(stemma_content_key_hex(event->keys, hex));
    EXPECT_EQ(std::strlen(hex), 64U);
    if (to.events++ == 0) to.first = hex;
    to.keys += event->key_count;
    to.words += event->word_count;
  };
  uint64_t next = 0;
  ASSERT_OK(stemma_cache_events(cache, 0, 100, each, &seen, &next));
  EXPECT_EQ(seen.keys, 3U);  // Two blocks and a tail of eight.
  EXPECT_EQ(seen.words, 40U);
  Seen again;
  uint64_t dump_next = 0;
  ASSERT_OK(stemma_cache_event_dump(cache, each, &again, &dump_next));
  EXPECT_EQ(again.first, seen.first);
  EXPECT_EQ(dump_next, next);
}

TEST_F(Callbacks, DumpLoadedElsewhereGivesTheSameAnswers) {
  create();
  const std::vector<uint32_t> words = tokens(64).tokens;
  fill(words);
  stemma_cache* twin = nullptr;
  ASSERT_OK(stemma_cache_create(&options, &twin));
  ASSERT_OK(stemma_cache_dump(
      cache,
      [](void* user, const uint8_t* bytes, size_t size) {
        auto* to = static_cast<stemma_cache*>(user);
        std::vector<uint8_t> broken(bytes, bytes + size);
        broken[size / 2] ^= 1;
        EXPECT_REFUSED(STEMMA_CORRUPT, "", stemma_cache_load, to, broken.data(), size);
        EXPECT_OK(stemma_cache_load(to, bytes, size));
      },
      twin));
  const stemma_prompt prompt = c_prompt(words);
  stemma_report report = STEMMA_REPORT_INIT;
  EXPECT_OK(stemma_cache_lookup(twin, &scope, &prompt, nullptr, &report));
  EXPECT_EQ(report.reused_tokens, 63U);
  EXPECT_OK(stemma_cache_destroy(twin, STEMMA_ON_BUSY_REFUSE));
}

TEST_F(Callbacks, HandlersCanBeSetAndTakenBack) {
  EXPECT_OK(stemma_set_log_handler([](void*, uint32_t, const char*, size_t) {}, nullptr));
  EXPECT_OK(stemma_set_log_handler(nullptr, nullptr));
  EXPECT_OK(stemma_set_fatal_handler([](void*, const char*, size_t) {}, nullptr));
  EXPECT_OK(stemma_set_fatal_handler(nullptr, nullptr));
  EXPECT_EQ(stemma_has_feature(nullptr), 0);
  EXPECT_EQ(stemma_version().minor, static_cast<uint32_t>(STEMMA_VERSION_MINOR));
  EXPECT_EQ(std::string(stemma_version_string()), std::to_string(STEMMA_VERSION_MAJOR) + "." +
                                                      std::to_string(STEMMA_VERSION_MINOR) + "." +
                                                      std::to_string(STEMMA_VERSION_PATCH));
}

TEST_F(Callbacks, ManyCachesComeAndGo) {
  // More caches than places: each place is given back, and an old pointer stays refused meanwhile.
  stemma_cache* first = nullptr;
  group = c_group(1);
  for (int i = 0; i < 5000; ++i) {
    stemma_cache* made = nullptr;
    ASSERT_OK(stemma_cache_create(&options, &made));
    if (i == 0) {
      first = made;
    } else if (i < 3000) {
      ASSERT_EQ(stemma_cache_poll(first, nullptr), STEMMA_STALE) << i;
    }
    ASSERT_OK(stemma_cache_destroy(made, STEMMA_ON_BUSY_REFUSE));
  }
}

}  // namespace
}  // namespace stemma::test
