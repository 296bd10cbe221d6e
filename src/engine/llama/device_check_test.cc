// Computing something small on a device, and the messages about processes that died of it.
#include "engine/llama/device_check.h"

#include <gtest/gtest.h>

#include <csignal>

namespace stemma::engine {
namespace {

using How = ChildEnd::How;
constexpr std::chrono::minutes kLong{10};

ChildEnd shell(const std::string& script) { return run_child({"/bin/sh", "-c", script}, kLong); }

FoundGpu found_h200() {
  return {{.name = "CUDA0", .description = "NVIDIA H200", .free_bytes = 1, .total_bytes = 1},
          "libggml-cuda.so"};
}
void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

TEST(DeviceCheck, TheCpuComputes) { EXPECT_EQ(compute_on("CPU"), ""); }

TEST(DeviceCheck, ADeviceThatIsNotThereIsNamed) {
  EXPECT_EQ(compute_on("CUDA77"), "there is no device CUDA77");
}

TEST(DeviceCheck, EndsOfProcessesAreToldApart) {
  const ChildEnd good = shell("echo out; echo err >&2");
  EXPECT_EQ(good.how, How::exited);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.output, "out\nerr\n");
  const ChildEnd bad = shell("exit 3");
  EXPECT_EQ(bad.how, How::exited);
  EXPECT_EQ(bad.code, 3);
  const ChildEnd dead = shell("kill -ABRT $$");
  EXPECT_EQ(dead.how, How::killed);
  EXPECT_EQ(dead.code, SIGABRT);
  EXPECT_EQ(run_child({"/no/such/program"}, kLong).how, How::not_started);
  EXPECT_EQ(run_child({}, kLong).how, How::not_started);
}

TEST(DeviceCheck, ALongOutputIsReadToItsEndAndKeptInPart) {
  const ChildEnd end = shell(
      "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890; "
      "i=$((i+1)); done");
  EXPECT_EQ(end.how, How::exited);
  EXPECT_EQ(end.output.size(), 16U << 10U);
}

TEST(DeviceCheck, AProcessThatHangsIsKilled) {
  const ChildEnd end = run_child({"/bin/sleep", "1000"}, std::chrono::milliseconds(0));
  EXPECT_EQ(end.how, How::too_slow);
  expect_has(why_gpu_fails(found_h200(), end), "NVIDIA H200 (CUDA0) does not answer");
}

TEST(DeviceCheck, WhatComputesIsNotComplainedOf) {
  EXPECT_EQ(why_gpu_fails(found_h200(), {.how = How::exited, .code = 0, .output = "any error"}),
            "");
  // The check found nothing out, so nothing is refused.
  EXPECT_EQ(why_gpu_fails(found_h200(), {}), "");
}

TEST(DeviceCheck, ALibraryWithoutCodeForTheGpuIsNamedWithWhatToDo) {
  for (const char* said : {"CUDA error: no kernel image is available for execution on the device\n",
                           "ggml was not compiled with any CUDA arch <= 900\n"}) {
    const std::string why =
        why_gpu_fails(found_h200(), {.how = How::killed, .code = SIGABRT, .output = said});
    expect_has(why, "libggml-cuda.so has no code for NVIDIA H200 (CUDA0)");
    expect_has(why, "scripts/get-llama --cuda");
    expect_has(why, "--gpu-layers 0");
  }
}

TEST(DeviceCheck, OtherDeathsAreToldInTheirOwnWords) {
  const std::string why = why_gpu_fails(
      found_h200(),
      {.how = How::killed, .code = SIGABRT, .output = "one\nCUDA error: lost\nthree\n"});
  expect_has(why, "NVIDIA H200 (CUDA0) cannot compute with libggml-cuda.so: CUDA error: lost");
  EXPECT_EQ(why.find('\n'), std::string::npos);
  expect_has(why_gpu_fails(found_h200(), {.how = How::exited, .code = 1, .output = ""}),
             "cannot compute with libggml-cuda.so; with --gpu-layers 0");
}

}  // namespace
}  // namespace stemma::engine
