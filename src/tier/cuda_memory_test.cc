// Memory pinned by a CUDA driver: here a fake one that records its calls
// (tests/support/fake_cuda.c). tests/device/pinned_memory.cc uses a real one.
#include "tier/cuda_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace stemma::tier {
namespace {

// The layout that the fake driver uses.
struct Calls {
  int contexts, device, pushed, registered;
  void* memory;
  size_t bytes;
  unsigned int flags;
};

class CudaMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(STEMMA_FAKE_CUDA, RTLD_NOW);
    ASSERT_NE(library_, nullptr) << dlerror();
    calls = static_cast<Calls*>(dlsym(library_, "fake_cuda_calls"));
    ASSERT_NE(calls, nullptr);
    *calls = {};
  }
  void TearDown() override {
    fail(nullptr);
    unsetenv("FAKE_CUDA_ACTIVE");
    unsetenv("FAKE_CUDA_BUSY");
    if (library_ != nullptr) dlclose(library_);
  }
  static void fail(const char* function) {
    if (function == nullptr) {
      unsetenv("FAKE_CUDA_FAILS");
    } else {
      setenv("FAKE_CUDA_FAILS", function, 1);
    }
  }
  static std::unique_ptr<CudaMemory> open() { return CudaMemory::open(STEMMA_FAKE_CUDA); }

  Calls* calls = nullptr;

 private:
  void* library_ = nullptr;
};

TEST_F(CudaMemoryTest, AHostTiersMemoryIsPinnedAsLongAsItLives) {
  {
    const auto hook = open();
    ASSERT_NE(hook, nullptr);
    {
      const auto tier = make_host_tier({.capacity_bytes = 4U << 20U, .hook = hook.get()}).value();
      EXPECT_EQ(calls->registered, 1);
      EXPECT_GE(calls->bytes, 3U << 20U);
      EXPECT_EQ(calls->flags, 1U) << "for all contexts";
      EXPECT_EQ(calls->pushed, 0) << "the caller's context is as it was";
    }
    EXPECT_EQ(calls->registered, 0);
  }
  EXPECT_EQ(calls->contexts, 0);
  EXPECT_EQ(calls->pushed, 0);
}

TEST_F(CudaMemoryTest, WithoutADeviceThereIsNothingToPinFor) {
  for (const char* function : {"cuInit", "cuDeviceGetCount", "cuDeviceGet",
                               "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain"}) {
    fail(function);
    EXPECT_EQ(open(), nullptr) << function;
    EXPECT_EQ(calls->contexts, 0) << function;
  }
}

TEST_F(CudaMemoryTest, TheDeviceIsOneInUseElseTheFirstThatCanBe) {
  EXPECT_NE(open(), nullptr);
  EXPECT_EQ(calls->device, 7);
  setenv("FAKE_CUDA_ACTIVE", "8", 1);
  EXPECT_NE(open(), nullptr);
  EXPECT_EQ(calls->device, 8);
  setenv("FAKE_CUDA_BUSY", "8", 1);
  EXPECT_NE(open(), nullptr);
  EXPECT_EQ(calls->device, 9);
  setenv("FAKE_CUDA_BUSY", "9", 1);
  EXPECT_EQ(open(), nullptr);
  EXPECT_EQ(calls->contexts, 0);
}

TEST_F(CudaMemoryTest, WhatCannotBePinnedIsPlainMemory) {
  const auto hook = open();
  ASSERT_NE(hook, nullptr);
  for (const char* function : {"cuMemHostRegister_v2", "cuCtxPushCurrent_v2"}) {
    fail(function);
    const Result<std::unique_ptr<Tier>> tier =
        make_host_tier({.capacity_bytes = 4U << 20U, .hook = hook.get()});
    EXPECT_TRUE(tier) << function;
    EXPECT_EQ(calls->registered, 0) << function;
    EXPECT_EQ(calls->pushed, 0) << function;
  }
}

TEST(CudaMemory, ALibraryThatIsNoDriverIsNone) {
  EXPECT_EQ(CudaMemory::open("libno-such-driver.so.1"), nullptr);
  EXPECT_EQ(CudaMemory::open("libm.so.6"), nullptr);
}

// A hook on a machine with a device, null otherwise; the same on every call.
TEST(CudaMemory, TheProcessHasOneHookOrNone) {
  HostMemoryHook* const hook = cuda_memory_hook();
  EXPECT_EQ(cuda_memory_hook(), hook);
  EXPECT_TRUE(make_host_tier({.capacity_bytes = 4U << 20U, .hook = hook}));
}

}  // namespace
}  // namespace stemma::tier
