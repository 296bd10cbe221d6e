// Devices that fail, over the fake one: nothing is lost, nothing leaks, and everybody is told.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/word_sum.h"
#include "mover/cuda/cuda_copier.h"
#include "mover/fake_device.h"
#include "mover/machine.h"
#include "mover/mover.h"

namespace stemma::test {
namespace {

using namespace mover;

constexpr uint64_t kPlane = 8192;
constexpr uint32_t kPages = 4;

class DeviceFaults : public ::testing::Test {
 protected:
  DeviceFaults() : device_(3), pages_(device_.take_device_memory(2 * kPages * kPlane)) {
    GroupPlanes group;
    group.pages = kPages;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      Plane plane;
      plane.base = reinterpret_cast<uint64_t>(pages_) + layer * kPages * kPlane;
      plane.page_stride = plane.run_bytes = kPlane;
      plane.layer = layer;
      group.planes.push_back(plane);
    }
    options_.device = 0;
    options_.groups.push_back(group);
    options_.batch_from_bytes = UINT64_MAX;
    host_.resize(kPages * 2 * kPlane);
    device_.pin(host_.data(), host_.size());
    for (uint32_t i = 0; i < kPages; ++i) {
      pieces_[i] = {host_.data() + i * 2 * kPlane, 2 * kPlane};
      items_[i] = {i, {&pieces_[i], 1}, base::word_sum({pieces_[i].data, 2 * kPlane})};
    }
  }
  ~DeviceFaults() override {
    mover_.reset();
    device_.unpin(host_.data());
    device_.give_back_device_memory(pages_);
    EXPECT_EQ(device_.leftovers(), "");
  }
  Result<std::unique_ptr<Mover>> try_make(const void* image = "a kernel") {
    image_ = image;
    return Mover::create(
        options_,
        [](const CopierOptions& copier, void* self) {
          auto& test = *static_cast<DeviceFaults*>(self);
          return make_cuda_copier(copier, test.device_.driver(), test.image_);
        },
        this);
  }
  void make() {
    auto made = try_make();
    ASSERT_TRUE(made) << made.error().to_string();
    mover_ = *std::move(made);
  }

  FakeDevice device_;
  uint8_t* pages_;
  MoverOptions options_;
  const void* image_ = nullptr;
  alignas(16) std::vector<uint8_t> host_;
  HostPiece pieces_[kPages];
  Item items_[kPages];
  std::unique_ptr<Mover> mover_;
};

TEST_F(DeviceFaults, ABrokenDeviceEndsEveryTransferAndRefusesTheNext) {
  make();
  device_.break_after(3, 719);
  int calls = 0;
  const auto done = [](void* user, std::optional<Errc> outcome) {
    EXPECT_EQ(outcome, Errc::copy_failed);
    ++*static_cast<int*>(user);
  };
  const auto first = mover_->load({.items = items_, .done = done, .user = &calls});
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->wait(kForever).error().code(), Errc::copy_failed);
  EXPECT_EQ((*first)->outcome_of(2).error, Errc::copy_failed);
  for (int i = 0; i < 3; ++i) {
    const auto next = mover_->store({.items = items_});
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code(), Errc::copy_failed);
  }
  EXPECT_EQ(mover_->gate(**first, 0, 0).error().code(), Errc::copy_failed);
  mover_.reset();
  EXPECT_EQ(calls, 1);
}

TEST_F(DeviceFaults, PagesThatWereFreedBreakTheDeviceAndNotTheProcess) {
  make();
  uint8_t* const other = device_.take_device_memory(16);
  device_.give_back_device_memory(pages_);
  pages_ = other;
  const auto loaded = mover_->load({.items = items_});
  ASSERT_TRUE(loaded);
  EXPECT_EQ((*loaded)->wait(kForever).error().code(), Errc::copy_failed);
}

TEST_F(DeviceFaults, ARefusedLaunchFailsOneTransferAndTheNextSucceeds) {
  for (const char* call : {"launch", "event_record", "event_create", "stream_wait"}) {
    for (uint32_t after = 0; after < 3; ++after) {
      SCOPED_TRACE(std::string(call) + " after " + std::to_string(after));
      make();
      device_.refuse(call, 1, 1, after);
      const uint64_t compute = reinterpret_cast<uint64_t>(device_.make_stream());
      const auto first = mover_->load({.items = items_, .after_stream = compute});
      // Either nothing was begun, or the transfer says how it ended.
      bool failed = !first;
      if (first) failed = !(*first)->wait(kForever);
      const auto second = mover_->load({.items = items_, .after_stream = compute});
      ASSERT_EQ(second.has_value() || !failed, true);
      if (second) {
        EXPECT_TRUE((*second)->wait(kForever) || !failed);
      }
      device_.refuse(call, 1, 0);
      const auto third = mover_->load({.items = items_});
      ASSERT_TRUE(third);
      EXPECT_TRUE((*third)->wait(kForever));
      mover_.reset();
      EXPECT_EQ(device_.driver().stream_destroy(reinterpret_cast<cuda::Stream>(compute)), 0);
    }
  }
}

TEST_F(DeviceFaults, RunningOutOfMemoryFailsOneTransferAndTheNextSucceeds) {
  for (uint32_t after = 0; after < 2; ++after) {
    make();
    device_.refuse("event_create", FakeDevice::kThrows, 1, after);
    const uint64_t compute = reinterpret_cast<uint64_t>(device_.make_stream());
    const auto first = mover_->load({.items = items_, .after_stream = compute});
    if (first) {
      EXPECT_FALSE((*first)->wait(kForever));
    } else {
      EXPECT_EQ(first.error().code(), Errc::out_of_memory);
      EXPECT_EQ(mover_->counters().running.load(), 0U);
    }
    const auto second = mover_->load({.items = items_, .after_stream = compute});
    ASSERT_TRUE(second);
    EXPECT_TRUE((*second)->wait(kForever));
    mover_.reset();
    EXPECT_EQ(device_.driver().stream_destroy(reinterpret_cast<cuda::Stream>(compute)), 0);
  }
}

// The area is used again only when the kernel of the failed load has read it.
TEST_F(DeviceFaults, AStagedLoadThatRunsOutOfMemoryWaitsForWhatItLaunched) {
  options_.arena_bytes = 4 * kPlane;
  std::vector<uint8_t> plain[2] = {std::vector<uint8_t>(2 * kPlane, 0x11),
                                   std::vector<uint8_t>(2 * kPlane, 0x22)};
  const HostPiece pieces[2] = {{plain[0].data(), 2 * kPlane}, {plain[1].data(), 2 * kPlane}};
  const Item items[2] = {{0, {pieces, 1}, 0}, {1, {pieces + 1, 1}, 0}};
  for (const char* call : {"launch", "event_create"}) {
    for (int round = 0; round < 20; ++round) {
      make();
      std::memset(pages_, 0, 2 * kPages * kPlane);
      device_.refuse(call, FakeDevice::kThrows, 1, 1);  // Layer 0 is under way.
      const auto first = mover_->load({.items = {items, 1}, .check = false});
      const auto second = mover_->load({.items = {items + 1, 1}, .check = false});
      ASSERT_TRUE(first && second);
      EXPECT_EQ((*first)->wait(kForever).error().code(), Errc::copy_failed);
      EXPECT_TRUE((*second)->wait(kForever));
      EXPECT_EQ(pages_[0], 0x11);
      EXPECT_EQ(pages_[kPlane - 1], 0x11);
      EXPECT_EQ(pages_[kPlane], 0x22);
      mover_.reset();
    }
  }
}

TEST_F(DeviceFaults, UnreachedMemoryNeedsTheMoversOwnStream) {
  options_.arena_bytes = 4 * kPlane;
  make();
  std::vector<uint8_t> plain(2 * kPlane);
  const HostPiece piece{plain.data(), plain.size()};
  const Item item{0, {&piece, 1}, 0};
  const cuda::Stream stream = device_.make_stream();
  const auto begun =
      mover_->load({.items = {&item, 1}, .stream = reinterpret_cast<uint64_t>(stream)});
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code(), Errc::unsupported);
  EXPECT_NE(std::string(begun.error().message()).find("OWN_STREAM"), std::string::npos);
  mover_.reset();
  EXPECT_EQ(device_.driver().stream_destroy(stream), 0);
}

TEST_F(DeviceFaults, WhatCannotBeMadeLeavesNothingBehind) {
  options_.arena_bytes = 65'536;
  for (const char* call : {"context_retain", "module_load", "module_function", "memory_take",
                           "copy_to_device", "host_register", "stream_create"}) {
    for (uint32_t after = 0; after < 3; ++after) {
      device_.refuse(call, 2, 1, after);
      const auto made = try_make();
      device_.refuse(call, 2, 0);
      if (made) continue;  // It is called less often than that.
      EXPECT_EQ(made.error().code(), Errc::out_of_memory) << call;
    }
  }
  EXPECT_EQ(try_make("another program").error().code(), Errc::copy_failed);
}

TEST_F(DeviceFaults, WhatWasPutIsThereAtOnce) {
  const auto device = *cuda::Device::open(device_.driver(), 0);
  const cuda::Device::Use use(*device);
  const auto to = reinterpret_cast<uint64_t>(pages_);
  std::memset(pages_, 0, sizeof to);
  for (uint64_t value = 1; value <= 20; ++value) {
    // The driver's own copy returns before that.
    ASSERT_EQ(device_.driver().copy_to_device(to, &value, sizeof value), 0);
    EXPECT_NE(std::memcmp(pages_, &value, sizeof value), 0);
    ASSERT_EQ(device->put(to, &value, sizeof value), 0);
    EXPECT_EQ(std::memcmp(pages_, &value, sizeof value), 0);
  }
}

TEST_F(DeviceFaults, PlanesMustBeInTheDevicesMemory) {
  const Plane good = options_.groups[0].planes[1];
  std::vector<uint8_t> elsewhere(kPages * kPlane);
  options_.groups[0].planes[1].base = reinterpret_cast<uint64_t>(elsewhere.data());
  auto made = try_make();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Errc::invalid_argument);
  EXPECT_EQ(made.error().value(), 1U);
  // One page more than there is.
  options_.groups[0].planes[1] = good;
  options_.groups[0].pages = kPages + 1;
  EXPECT_EQ(try_make().error().value(), 1U);
  options_.groups[0].pages = kPages;
  options_.device = 1;
  EXPECT_EQ(try_make().error().code(), Errc::invalid_argument);
}

TEST_F(DeviceFaults, EveryPieceOfHostMemoryIsLookedAt) {
  make();
  // The middle of three neighbours is not pinned.
  const std::unique_ptr<uint8_t, void (*)(void*)> memory(
      static_cast<uint8_t*>(std::aligned_alloc(4096, 2 * kPlane)), std::free);
  uint8_t* const at = memory.get();
  device_.pin(at, 4096);
  device_.pin(at + 12'288, 4096);
  const HostPiece pieces[] = {{at, 4096}, {at + 4096, 8192}, {at + 12'288, 4096}};
  const Item item{0, pieces, 0};
  const auto stored = mover_->store({.items = {&item, 1}});
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), Errc::unsupported);
  device_.unpin(at);
  device_.unpin(at + 12'288);
}

TEST_F(DeviceFaults, PagesAreNoHostMemory) {
  options_.arena_bytes = 65'536;
  make();
  const HostPiece inside{pages_ + kPlane * kPages, 2 * kPlane};
  const Item items[] = {items_[0], {1, {&inside, 1}, 0}};
  const auto stored = mover_->store({.items = items});
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), Errc::invalid_argument);
  EXPECT_EQ(stored.error().value(), 1U);
}

TEST_F(DeviceFaults, PackedBlocksMustBeInTheDevicesMemory) {
  make();
  const uint32_t pages[] = {0, 1};
  uint8_t* const packed = device_.take_device_memory(4 * kPlane);
  const auto begun = [&](const void* to) {
    return mover_->pack(Way::from_pages, 0, pages, reinterpret_cast<uint64_t>(to), kOwnStream);
  };
  const auto good = begun(packed);
  ASSERT_TRUE(good);
  EXPECT_TRUE((*good)->wait(kForever));
  for (const uint8_t* bad : {packed + 16, host_.data()}) {
    const auto refused = begun(bad);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::invalid_argument);
  }
  device_.give_back_device_memory(packed);
}

TEST_F(DeviceFaults, AStreamThatCapturesAGraphIsRefusedByName) {
  make();
  const cuda::Stream stream = device_.make_stream();
  const auto number = reinterpret_cast<uint64_t>(stream);
  const auto before = mover_->load({.items = items_});
  ASSERT_TRUE(before);
  device_.capture(stream, true);
  const auto refused = [&](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Errc::wrong_state);
    EXPECT_NE(std::string(result.error().message()).find("captures a graph"), std::string::npos);
  };
  const uint32_t page = 0;
  uint8_t* const packed = device_.take_device_memory(2 * kPlane);
  refused(mover_->load({.items = items_, .stream = number}));
  refused(mover_->store({.items = items_, .after_stream = number}));
  refused(mover_->load({.items = items_, .after_stream = 0}));  // It would wait for all streams.
  refused(mover_->pack(Way::from_pages, 0, {&page, 1}, reinterpret_cast<uint64_t>(packed), number));
  refused(mover_->gate(**before, 0, number));
  EXPECT_EQ(device_.ended_captures(), 0U);
  EXPECT_TRUE((*before)->wait(kForever));
  // Nothing broke.
  EXPECT_TRUE((*mover_->load({.items = items_}))->wait(kForever));
  device_.capture(stream, false);
  const auto after = mover_->load({.items = items_, .stream = number});
  ASSERT_TRUE(after);
  EXPECT_TRUE((*after)->wait(kForever));
  mover_.reset();
  device_.give_back_device_memory(packed);
  EXPECT_EQ(device_.driver().stream_destroy(stream), 0);
}

TEST_F(DeviceFaults, BatchesStayAwayFromTheLegacyDefaultStream) {
  options_.batch_from_bytes = 4096;
  make();
  for (const uint64_t stream : {uint64_t{0}, uint64_t{1}}) {
    const auto loaded = mover_->load({.items = items_, .stream = stream});
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_TRUE((*loaded)->wait(kForever));
  }
  EXPECT_EQ(mover_->counters().batched_bytes.load(), 0U);
}

TEST_F(DeviceFaults, AMoverThatEndsWaitsForItsTransfers) {
  for (int round = 0; round < 20; ++round) {
    make();
    std::memset(host_.data(), round + 1, host_.size());
    const auto loaded = mover_->load({.items = items_, .check = false});
    ASSERT_TRUE(loaded);
    mover_.reset();
    EXPECT_TRUE((*loaded)->over());
    EXPECT_EQ(pages_[2 * kPages * kPlane - 1], round + 1);
  }
}

TEST_F(DeviceFaults, TheSizeForBatchesIsMeasuredOnlyForLongRuns) {
  options_.batch_from_bytes = 0;
  make();
  EXPECT_EQ(mover_->copier().batch_from_bytes(), UINT64_MAX);
  // A driver without batches has none.
  mover_.reset();
  options_.batch_from_bytes = 4096;
  device_.driver().copy_batch = nullptr;
  make();
  EXPECT_EQ(mover_->copier().batch_from_bytes(), UINT64_MAX);
}

}  // namespace
}  // namespace stemma::test
