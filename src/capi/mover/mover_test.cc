// The C ABI of movers: bad calls, transfers by number, and a mover under a cache and tiers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "stemma/stemma_mover.h"
#include "stemma/stemma_tiers.h"
#include "support/c_cache.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

constexpr uint32_t kTokens = 16, kPages = 64, kTokenBytes = 32, kLayers = 2;
constexpr uint64_t kPlaneBytes = kTokens * kTokenBytes;
constexpr uint64_t kBlockBytes = kLayers * kPlaneBytes;

class MoverAbi : public CapiFixture {
 protected:
  void SetUp() override {
    CapiFixture::SetUp();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      stemma_mover_plane plane = {};
      plane.base = reinterpret_cast<uint64_t>(memory.data()) + layer * kPages * kPlaneBytes;
      plane.page_stride = kPlaneBytes;
      plane.run_bytes = kTokenBytes;
      plane.layer = layer;
      plane.dim_count = 1;
      plane.dim_size[0] = kTokens;
      plane.dim_stride[0] = kTokenBytes;
      plane.token_dim = 0;
      planes.push_back(plane);
    }
    pages.planes = planes.data();
    pages.plane_count = planes.size();
    pages.pages = kPages;
    mover_options.groups = &pages;
    mover_options.group_count = 1;
    mover_options.threads = 2;
    item.pieces = &piece;
    item.piece_count = 1;
    request.items = &item;
    request.count = 1;
  }
  void TearDown() override {
    CapiFixture::TearDown();
    if (mover != nullptr) {
      EXPECT_OK(stemma_mover_destroy(mover));
    }
  }
  void make() { ASSERT_OK(stemma_mover_create(&mover_options, &mover)); }
  uint8_t* at(uint32_t page, uint32_t layer) {
    return memory.data() + (layer * kPages + page) * kPlaneBytes;
  }
  stemma_transfer store() {
    stemma_transfer transfer = 0;
    EXPECT_OK(stemma_mover_store(mover, &request, &transfer));
    return transfer;
  }

  // The byte that fills a block's plane, so that it says which it is.
  static uint8_t stamp(uint32_t b, uint32_t layer) {
    return static_cast<uint8_t>(1 + b * 16 + layer);
  }
  void stamp_pages(const uint32_t* table, uint32_t count) {
    for (uint32_t b = 0; b < count; ++b) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        std::memset(at(table[b], layer), stamp(b, layer), kPlaneBytes);
      }
    }
  }
  void expect_stamps(const uint32_t* table, uint32_t count) {
    for (uint32_t b = 0; b < count; ++b) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(at(table[b], layer)[0], stamp(b, layer));
        EXPECT_EQ(at(table[b], layer)[kPlaneBytes - 1], stamp(b, layer));
      }
    }
  }

  std::vector<uint8_t> memory = std::vector<uint8_t>(kLayers * kPages * kPlaneBytes);
  alignas(16) uint8_t block[kBlockBytes + 16] = {};
  std::vector<stemma_mover_plane> planes;
  stemma_mover_group pages = {};
  stemma_mover_options mover_options = STEMMA_MOVER_OPTIONS_INIT;
  stemma_host_piece piece = {block, kBlockBytes};
  stemma_mover_item item = {};
  stemma_mover_request request = STEMMA_MOVER_REQUEST_INIT;
  stemma_mover* mover = nullptr;
};

TEST_F(MoverAbi, BadOptionsAreRefusedByName) {
  stemma_mover* out = nullptr;
  const auto refused = [&](const char* culprit, auto change) {
    stemma_mover_options bad = mover_options;
    stemma_mover_group with = pages;
    stemma_mover_plane plane[kLayers] = {planes[0], planes[1]};
    with.planes = plane;
    bad.groups = &with;
    change(bad, with, plane[1]);
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, culprit, stemma_mover_create, &bad, &out);
  };
  using Options = stemma_mover_options;
  using Group = stemma_mover_group;
  using Plane = stemma_mover_plane;
  refused("struct_size", [](Options& o, Group&, Plane&) { o.struct_size = 5; });
  refused("groups", [](Options& o, Group&, Plane&) { o.groups = nullptr; });
  refused("group_count", [](Options& o, Group&, Plane&) { o.group_count = 9; });
  refused("device", [](Options& o, Group&, Plane&) { o.device = -2; });
  refused("threads", [](Options& o, Group&, Plane&) { o.threads = 65; });
  refused("thread_blocks", [](Options& o, Group&, Plane&) { o.thread_blocks = 9; });
  refused("ring_bytes", [](Options& o, Group&, Plane&) { o.ring_bytes = 65'535; });
  refused("no planes", [](Options&, Group& g, Plane&) { g.planes = nullptr; });
  refused("no pages", [](Options&, Group& g, Plane&) { g.pages = 0; });
  refused("reserved", [](Options&, Group& g, Plane&) { g.reserved = 1; });
  refused("dim_count", [](Options&, Group&, Plane& p) { p.dim_count = 5; });
  refused("token_dim", [](Options&, Group&, Plane& p) { p.token_dim = 1; });
  refused("overlap", [](Options&, Group&, Plane& p) { p.page_stride = 16; });
  EXPECT_EQ(stemma_last_error_value(), 1U);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "options", stemma_mover_create, nullptr, &out);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out", stemma_mover_create, &mover_options, nullptr);
  EXPECT_EQ(out, nullptr);
}

TEST_F(MoverAbi, WithoutADeviceDevicesAreRefused) {
  if (stemma_mover_device_count() != 0) GTEST_SKIP() << "this machine has a CUDA device";
  mover_options.device = 0;
  stemma_mover* out = nullptr;
  EXPECT_REFUSED(STEMMA_UNSUPPORTED, "CUDA", stemma_mover_create, &mover_options, &out);
}

TEST_F(MoverAbi, BadRequestsAreRefusedAndBeginNothing) {
  make();
  stemma_transfer out = 0;
  const auto refused = [&](stemma_status status, const char* culprit, auto change) {
    stemma_mover_request bad = request;
    stemma_mover_item with = item;
    stemma_host_piece where = piece;
    with.pieces = &where;
    bad.items = &with;
    change(bad, with, where);
    EXPECT_REFUSED(status, culprit, stemma_mover_load, mover, &bad, &out);
    EXPECT_REFUSED(status, culprit, stemma_mover_store, mover, &bad, &out);
  };
  using Request = stemma_mover_request;
  using Item = stemma_mover_item;
  using Piece = stemma_host_piece;
  const stemma_status invalid = STEMMA_INVALID_ARGUMENT;
  refused(invalid, "struct_size", [](Request& r, Item&, Piece&) { r.struct_size = 1; });
  refused(invalid, "items", [](Request& r, Item&, Piece&) { r.items = nullptr; });
  refused(invalid, "count", [](Request& r, Item&, Piece&) { r.count = SIZE_MAX; });
  refused(invalid, "check", [](Request& r, Item&, Piece&) { r.check = 2; });
  refused(invalid, "stream", [](Request& r, Item&, Piece&) { r.stream = STEMMA_MOVER_NO_STREAM; });
  refused(STEMMA_OUT_OF_RANGE, "group", [](Request& r, Item&, Piece&) { r.group = 1; });
  refused(STEMMA_OUT_OF_RANGE, "page", [](Request&, Item& i, Piece&) { i.page = kPages; });
  refused(invalid, "pieces", [](Request&, Item& i, Piece&) { i.pieces = nullptr; });
  refused(invalid, "16 bytes",
          [](Request&, Item&, Piece& p) { p.data = static_cast<uint8_t*>(p.data) + 8; });
  refused(invalid, "block_bytes", [](Request&, Item&, Piece& p) { p.bytes -= 16; });
  EXPECT_REFUSED(invalid, "request", stemma_mover_load, mover, nullptr, &out);
  EXPECT_REFUSED(invalid, "out", stemma_mover_load, mover, &request, nullptr);
  EXPECT_EQ(out, 0U);
  EXPECT_REFUSED(invalid, "null", stemma_mover_load, nullptr, &request, &out);
}

TEST_F(MoverAbi, NumbersOfTransfersAreJudgedSafely) {
  make();
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "transfer", stemma_transfer_wait, 0, 0);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "transfer", stemma_transfer_end, 12345);
  const stemma_transfer transfer = store();
  EXPECT_OK(stemma_transfer_wait(transfer, STEMMA_NEVER));
  size_t count = 0;
  EXPECT_OK(stemma_transfer_results(transfer, nullptr, 0, &count));
  EXPECT_EQ(count, 1U);
  uint64_t event = 7;
  EXPECT_OK(stemma_transfer_event(transfer, 1, &event));
  EXPECT_EQ(event, 0U);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "stream", stemma_transfer_gate, transfer, 0,
                 STEMMA_MOVER_OWN_STREAM);
  EXPECT_OK(stemma_transfer_end(transfer));
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_transfer_gate, transfer, 0, 0);
  const stemma_transfer last = store();
  EXPECT_OK(stemma_mover_destroy(mover));
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_transfer_wait, last, 0);
  EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_mover_destroy, mover);
  mover = nullptr;
}

TEST_F(MoverAbi, AFenceOutlivesTheNumberOfItsTransfer) {
  make();
  for (int round = 0; round < 50; ++round) {
    const stemma_transfer transfer = store();
    stemma_fence fence = {};
    ASSERT_OK(stemma_transfer_fence(transfer, &fence));
    ASSERT_OK(stemma_transfer_end(transfer));
    if (round % 2 == 0) continue;  // Nobody asks it again: the mover's end takes it.
    while (fence.signalled(fence.user) == 0) std::this_thread::yield();
  }
}

TEST_F(MoverAbi, ManyThreadsMayAskAboutOneTransfer) {
  make();
  for (int round = 0; round < 20; ++round) {
    const stemma_transfer transfer = store();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        EXPECT_OK(stemma_transfer_gate(transfer, 1, 0));
        EXPECT_OK(stemma_transfer_wait(transfer, STEMMA_NEVER));
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_OK(stemma_transfer_end(transfer));
  }
}

TEST_F(MoverAbi, ACallbackMayNotDestroyItsMover) {
  make();
  std::atomic<int> answer{-1};
  struct Both {
    stemma_mover* mover;
    std::atomic<int>* answer;
  } both{mover, &answer};
  request.user = &both;
  request.done = [](void* user, stemma_status outcome) {
    EXPECT_EQ(outcome, STEMMA_OK);
    const auto& self = *static_cast<Both*>(user);
    *self.answer = stemma_mover_destroy(self.mover);
    self.answer->notify_all();
  };
  const stemma_transfer transfer = store();
  answer.wait(-1);
  EXPECT_EQ(answer, STEMMA_BUSY);
  EXPECT_OK(stemma_transfer_end(transfer));
}

TEST_F(MoverAbi, ArenaMemoryIsTakenAndGivenBack) {
  mover_options.arena_bytes = 16'384;
  make();
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_OK(stemma_mover_take(mover, 12'288, &first));
  EXPECT_REFUSED(STEMMA_OUT_OF_MEMORY, "range", stemma_mover_take, mover, 8'192, &second);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "not from", stemma_mover_give_back, mover, block);
  EXPECT_OK(stemma_mover_give_back(mover, first));
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "given back", stemma_mover_give_back, mover, first);
  EXPECT_OK(stemma_mover_take(mover, 16'384, &second));
}

void make_host_stack(uint64_t capacity_bytes, stemma_stack** stack) {
  stemma_level level = STEMMA_LEVEL_INIT;
  level.capacity_bytes = capacity_bytes;
  stemma_stack_options with = STEMMA_STACK_OPTIONS_INIT;
  with.levels = &level;
  with.level_count = 1;
  with.query_ns = with.load_ns = STEMMA_NEVER;
  ASSERT_OK(stemma_stack_create(&with, stack));
}

// A cache and tiers that move their bytes with the mover.
TEST_F(MoverAbi, BlocksComeBackFromTiersThroughTheMover) {
  make();
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  ASSERT_OK(stemma_mover_block_io(mover, STEMMA_MOVER_NO_STREAM, &io));
  uint64_t layout = 0;
  ASSERT_OK(stemma_mover_layout(mover, &layout));
  group = c_group(kPages, kTokens);
  group.block_bytes = kBlockBytes;
  options.block_io = &io;
  create();
  stemma_stack* stack = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_host_stack(4U << 20U, &stack));
  stemma_paged_tiers_options under = STEMMA_PAGED_TIERS_OPTIONS_INIT;
  under.groups = &group;
  under.group_count = 1;
  under.io = &io;
  under.layout = layout;
  stemma_paged_tiers* tiers = nullptr;
  ASSERT_OK(stemma_paged_tiers_create(stack, &under, &tiers));

  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_prompt prompt = c_prompt(words);
  uint32_t table[kPages] = {}, count = 0;
  stemma_lease lease = take(words);
  ASSERT_OK(stemma_lease_block_table(lease, 0, table, kPages, STEMMA_NO_BLOCK, &count));
  stamp_pages(table, count);
  ASSERT_OK(stemma_lease_commit(lease, 100, nullptr));
  uint32_t stored = 0;
  ASSERT_OK(stemma_paged_tiers_store(tiers, &scope, &prompt, lease, 0, 50, &stored));
  EXPECT_EQ(stored, 6U);
  ASSERT_OK(stemma_lease_release(lease, nullptr));
  ASSERT_OK(stemma_stack_flush(stack, STEMMA_NEVER, nullptr));
  ASSERT_OK(stemma_cache_drop_scope(cache, &scope, nullptr));
  std::fill(memory.begin(), memory.end(), 0xEE);

  stemma_lookup_options whole = STEMMA_LOOKUP_OPTIONS_INIT;
  whole.allow_copy = 0;
  stemma_lease_options leased = STEMMA_LEASE_OPTIONS_INIT;
  leased.lookup = &whole;
  stemma_restored restored = {};
  ASSERT_OK(stemma_paged_tiers_restore(tiers, cache, &scope, &prompt, &leased, &restored));
  EXPECT_EQ(restored.restored_tokens, 96U);
  ASSERT_OK(stemma_cache_lease(cache, &scope, &prompt, &leased, &lease));
  ASSERT_OK(stemma_lease_block_table(lease, 0, table, kPages, STEMMA_NO_BLOCK, &count));
  expect_stamps(table, 6);
  if (restored.hold != 0) {
    ASSERT_OK(stemma_lease_release(restored.hold, nullptr));
  }
  ASSERT_OK(stemma_lease_commit(lease, 100, nullptr));
  ASSERT_OK(stemma_lease_release(lease, nullptr));

  // Another prompt that ends in the middle of a block: the cache asks the mover for a part-block.
  std::vector<uint32_t> other(words.begin(), words.begin() + 40);
  other.push_back(9);
  lease = take(other);
  size_t copies = 0;
  ASSERT_OK(stemma_lease_copies(lease, nullptr, 0, &copies));
  ASSERT_EQ(copies, 1U);
  ASSERT_OK(stemma_lease_run_copies(lease));
  ASSERT_OK(stemma_lease_block_table(lease, 0, table, kPages, STEMMA_NO_BLOCK, &count));
  EXPECT_EQ(at(table[2], 1)[8 * kTokenBytes - 1], stamp(2, 1));
  ASSERT_OK(stemma_lease_release(lease, nullptr));
  ASSERT_OK(stemma_paged_tiers_destroy(tiers));
  ASSERT_OK(stemma_stack_destroy(stack));
  stemma_mover_stats stats = {};
  stats.struct_size = sizeof stats;
  ASSERT_OK(stemma_mover_stats_get(mover, &stats));
  EXPECT_EQ(stats.load_bytes, 6 * kBlockBytes);
  EXPECT_EQ(stats.store_bytes, 6 * kBlockBytes);
  EXPECT_EQ(stats.copies, 1U);
}

// Whoever hears that its last copy is over may end the mover at once.
TEST_F(MoverAbi, AMoverWhoseCopiesAreOverIsNotBusy) {
  for (int round = 0; round < 200; ++round) {
    make();
    stemma_block_io io = STEMMA_BLOCK_IO_INIT;
    ASSERT_OK(stemma_mover_block_io(mover, STEMMA_MOVER_NO_STREAM, &io));
    std::atomic<int> ended{-1};
    const stemma_io number = stemma_io_begin(
        [](void* user, stemma_status outcome) {
          static_cast<std::atomic<int>*>(user)->store(outcome);
        },
        &ended);
    const uint32_t page = 3;
    io.read(io.user, number, 0, &page, 1, block, kBlockBytes);
    while (ended == -1) {
    }
    ASSERT_EQ(ended.load(), STEMMA_OK);
    ASSERT_OK(stemma_mover_destroy(mover));
    mover = nullptr;
  }
}

TEST_F(MoverAbi, ACacheWithOtherBlocksHearsThatItsCopiesFailed) {
  make();
  stemma_block_io io = STEMMA_BLOCK_IO_INIT;
  ASSERT_OK(stemma_mover_block_io(mover, STEMMA_MOVER_NO_STREAM, &io));
  std::atomic<int> ended{-1};
  const auto done = [](void* user, stemma_status outcome) {
    auto& out = *static_cast<std::atomic<int>*>(user);
    out = outcome;
    out.notify_all();
  };
  const auto outcome = [&](auto call) {
    ended = -1;
    const stemma_io number = stemma_io_begin(done, &ended);
    call(number);
    ended.wait(-1);
    return ended.load();
  };
  const uint32_t page = 3, no_page = kPages;
  EXPECT_EQ(outcome([&](stemma_io n) { io.read(io.user, n, 0, &page, 1, block, kBlockBytes); }),
            STEMMA_OK);
  EXPECT_EQ(outcome([&](stemma_io n) { io.read(io.user, n, 0, &page, 1, block, 16); }),
            STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(outcome([&](stemma_io n) { io.write(io.user, n, 1, &page, 1, block, kBlockBytes); }),
            STEMMA_OUT_OF_RANGE);
  EXPECT_EQ(outcome([&](stemma_io n) { io.read(io.user, n, 0, &no_page, 1, block, kBlockBytes); }),
            STEMMA_OUT_OF_RANGE);
  // A buffer at an odd address is slower, but right.
  std::memset(at(3, 0), 0x5A, kPlaneBytes);
  EXPECT_EQ(outcome([&](stemma_io n) { io.read(io.user, n, 0, &page, 1, block + 1, kBlockBytes); }),
            STEMMA_OK);
  EXPECT_EQ(block[1], 0x5A);
  const stemma_block_copy copy = {0, 3, STEMMA_NO_BLOCK, 4};
  EXPECT_EQ(outcome([&](stemma_io n) { io.copy(io.user, n, &copy, 1); }), STEMMA_OUT_OF_RANGE);
}

}  // namespace
}  // namespace stemma::test
