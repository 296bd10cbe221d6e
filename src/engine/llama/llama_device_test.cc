// The messages about GPUs that are there and those that are not, for any list of plugins and
// devices.
#include "engine/llama/llama_device.h"

#include <gtest/gtest.h>

#include <limits>

namespace stemma::engine {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30U;

ComputeDevice h200_device() {
  return {.name = "CUDA0",
          .description = "NVIDIA H200",
          .free_bytes = 100 * kGiB,
          .total_bytes = 139 * kGiB};
}
void expect_names(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

TEST(LlamaDevice, NothingIsWrongWhereThereIsAGpu) {
  GpuSearch found;
  found.gpus = {{h200_device(), "libggml-cuda.so"}};
  found.plugins = {{"libggml-cuda.so", ""}, {"libggml-vulkan.so", "no driver"}};
  EXPECT_EQ(why_no_gpu(found), "");
}

TEST(LlamaDevice, WithoutAPluginItIsSaidHowToGetOne) {
  expect_names(why_no_gpu({}), "scripts/get-llama --cuda");
}

TEST(LlamaDevice, EveryPluginThatCannotBeUsedIsNamedWithItsReason) {
  GpuSearch found;
  found.plugins = {{"libggml-cuda.so", "CUDA finds no GPU"}, {"libggml-vulkan.so", "no loader"}};
  EXPECT_EQ(why_no_gpu(found), "libggml-cuda.so: CUDA finds no GPU; libggml-vulkan.so: no loader");
}

TEST(LlamaDevice, MissingDriversAndLibrariesAreExplained) {
  const std::string missing = ": cannot open shared object file: No such file or directory";
  expect_names(explain_loader("libcuda.so.1" + missing), "driver is not installed");
  expect_names(explain_loader("libcuda.so.1" + missing), missing);
  expect_names(explain_loader("libcudart.so.13" + missing), "CUDA toolkit");
  expect_names(explain_loader("libcublas.so.13" + missing), "CUDA toolkit");
  expect_names(explain_loader("libvulkan.so.1" + missing), "libvulkan1");
  EXPECT_EQ(explain_loader("/x/libggml-cuda.so: file too short"),
            "/x/libggml-cuda.so: file too short");
}

TEST(LlamaDevice, ThePlacementIsDescribedInOneLine) {
  Placement placement{.gpus = {h200_device()}, .gpu_layers = 33, .layers = 33, .why_cpu = ""};
  EXPECT_EQ(describe(placement), "NVIDIA H200 (CUDA0), 33 of 33 layers, 102400 of 142336 MiB free");
  placement.gpus.push_back({.name = "CUDA1", .description = "", .free_bytes = 0, .total_bytes = 0});
  expect_names(describe(placement), "NVIDIA H200 (CUDA0) + CUDA1, 33 of 33 layers");
  EXPECT_EQ(describe({.gpus = {}, .gpu_layers = 0, .layers = 33, .why_cpu = "no driver"}),
            "CPU: no driver");
  EXPECT_EQ(describe({}), "CPU");
}

TEST(LlamaDevice, WeightsThatDoNotFitAreNamedWithNumbers) {
  const std::vector<FoundGpu> gpus = {{h200_device(), "libggml-cuda.so"}};
  const std::string hint = weights_hint("cudaMalloc failed: out of memory", 150 * kGiB, gpus);
  expect_names(hint, "153600 MiB");
  expect_names(hint, "NVIDIA H200 (CUDA0) had 102400 MiB");
  expect_names(hint, "--gpu-layers");
  EXPECT_EQ(weights_hint("unknown architecture", 150 * kGiB, gpus), "");
  EXPECT_EQ(weights_hint("cudaMalloc failed: out of memory", 150 * kGiB, {}), "");
}

TEST(LlamaDevice, ContextsForWhichThereWasNoMemoryAreNamedWithNumbers) {
  const Placement placement{.gpus = {h200_device()}, .gpu_layers = 9, .layers = 33, .why_cpu = ""};
  const std::string hint = context_hint("failed to allocate buffer for kv cache", placement);
  expect_names(hint, "NVIDIA H200 (CUDA0), 9 of 33 layers, 102400 of 142336 MiB free");
  expect_names(hint, "a smaller --context or --batch, or fewer --gpu-layers");
  EXPECT_EQ(context_hint("V cache quantization requires flash_attn", placement), "");
  EXPECT_EQ(context_hint("failed to allocate buffer for kv cache", {}), "");
}

TEST(LlamaDevice, ContextsThatFitNeedNoWords) {
  const ContextNeeds needs{.tokens = 1024, .parts = 1, .bytes_per_token = 1024, .gpu_share = 0.5};
  EXPECT_EQ(why_no_context(needs, {512 * 1024, "the machine"}, {512 * 1024, "the GPU"}), "");
  EXPECT_EQ(why_no_context({}, {0, "the machine"}, {0, "the GPU"}), "");
}

TEST(LlamaDevice, AContextMustFitIntoTheGpuThatHasItsLayers) {
  ContextNeeds needs{.tokens = 65'536, .parts = 1, .bytes_per_token = 131'072, .gpu_share = 1};
  const Room plenty{std::numeric_limits<uint64_t>::max(), "the machine"};
  // Memory of the machine does not help.
  const std::string why = why_no_context(needs, plenty, {4 * kGiB, "NVIDIA H200 (CUDA0)"});
  expect_names(why, "a context of 65536 tokens needs 8192 MiB for K and V (131072 bytes a token)");
  expect_names(why, "but NVIDIA H200 (CUDA0) has 4096 MiB left");
  expect_names(why, "at most 32768 tokens (--context), or fewer --gpu-layers");
  // With half of the layers there, half of the memory is needed.
  needs.gpu_share = 0.5;
  EXPECT_EQ(why_no_context(needs, plenty, {4 * kGiB, "NVIDIA H200 (CUDA0)"}), "");
  expect_names(why_no_context(needs, {kGiB, "the machine"}, {4 * kGiB, "NVIDIA H200 (CUDA0)"}),
               "needs 4096 MiB for K and V (131072 bytes a token), but the machine has 1024 MiB");
}

}  // namespace
}  // namespace stemma::engine
