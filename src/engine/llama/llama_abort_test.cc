#include "engine/llama/llama_abort.h"

#include <ggml.h>
#include <gtest/gtest.h>
#include <llama.h>

#include "engine/llama/llama_library.h"

namespace stemma::engine {
namespace {

// What the CUDA library does when a copy fails: a line in the log, then abort.
void lose_the_gpu() {
  start_library();
  ggml_log_callback log = nullptr;
  void* user = nullptr;
  llama_log_get(&log, &user);
  log(GGML_LOG_LEVEL_ERROR, "an error of long ago\n", user);
  log(GGML_LOG_LEVEL_ERROR, "CUDA error: the GPU has fallen off the bus\n", user);
  log(GGML_LOG_LEVEL_ERROR, "  current device: 0, in function set_tensor\n", user);
  ggml_abort("ggml-cuda.cu", 98, "CUDA error");
}

TEST(LlamaAbortDeathTest, AGpuThatIsLostIsNamedAndTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lose_the_gpu(), testing::KilledBySignal(SIGABRT),
              "CUDA error: the GPU has fallen off the bus .*The GPU failed or was lost. Nothing "
              "that was under way has been answered or saved");
}

TEST(LlamaAbort, WhatIsNoGpusFaultIsNotBlamedOnOne) {
  EXPECT_EQ(explain_abort("ggml.c:12: GGML_ASSERT(a) failed", ""),
            "llama.cpp cannot go on, and this process ends: ggml.c:12: GGML_ASSERT(a) failed.");
}

TEST(LlamaAbort, TheLogSaysMoreThanTheLastWords) {
  const std::string words = explain_abort("x.cu:1: CUDA error", "CUDA error: out of memory");
  EXPECT_NE(words.find("ends: CUDA error: out of memory (x.cu:1: CUDA error)."), std::string::npos)
      << words;
  EXPECT_NE(words.find("--gpu-layers 0"), std::string::npos);
}

}  // namespace
}  // namespace stemma::engine
