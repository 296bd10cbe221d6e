// Finds which GPUs llama.cpp can use on this machine; if it can use none, says why and what to do.
//
// Code for GPUs is in plugins (libggml-cuda.so, libggml-vulkan.so) beside llama.cpp's library.
// llama.cpp silently skips a plugin that cannot be loaded, and computes on the CPU. So the plugins
// are checked again here.
//
// Threading:  find_gpus is thread-safe; the others are pure functions.
// Cost:       find_gpus loads the plugins and asks their drivers once a process, which takes up to
//             a second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language_model.h"

namespace stemma::engine {

// A plugin that could have offered a GPU.
struct GpuPlugin {
  std::string file;     // "libggml-cuda.so".
  std::string problem;  // Why it offers none; empty if it does.
};

struct FoundGpu {
  ComputeDevice device;
  std::string plugin;  // The file that offers it; empty if it is not known.
};

struct GpuSearch {
  std::vector<FoundGpu> gpus;  // In llama.cpp's order, each card once, whichever plugins see it.
  std::vector<GpuPlugin> plugins;
};

// The GPUs and how much memory each has free now.
GpuSearch find_gpus();

// Why no GPU can be used, and what to do; empty if there is one.
std::string why_no_gpu(const GpuSearch& found);

// The loader's error about a plugin, together with what is probably missing.
std::string explain_loader(std::string_view error);

// "NVIDIA H200 (CUDA0)".
std::string name_of(const ComputeDevice& device);

// For the log: "NVIDIA H200 (CUDA0), 33 of 33 layers, 101 of 139 GiB free", or "CPU" and why.
std::string describe(const Placement& placement);

// For a model that could not be loaded: how large it is, what the GPUs had free, and what to
// choose. Empty if llama.cpp's error does not sound like a lack of memory, or no GPU was used.
std::string weights_hint(std::string_view error, uint64_t model_bytes,
                         const std::vector<FoundGpu>& gpus);
// The same for a context that could not be made.
std::string context_hint(std::string_view error, const Placement& placement);

// The memory that a context takes, and (Room) the memory that is there for it.
struct ContextNeeds {
  uint64_t tokens = 0;  // For each part.
  uint32_t parts = 1;   // 1, or a part for each sequence.
  uint64_t bytes_per_token = 0;
  uint64_t fixed_bytes = 0;
  // The share that GPUs hold: K and V lie where their layers are computed.
  double gpu_share = 0;
};
struct Room {
  uint64_t bytes = 0;
  std::string name;  // "the machine", "NVIDIA H200 (CUDA0)".
};
// Sizes of contexts are multiples of this.
inline constexpr uint32_t kContextStep = 256;
// Empty if it fits; otherwise the numbers, and what to choose.
std::string why_no_context(const ContextNeeds& needs, const Room& host, const Room& gpus);

}  // namespace stemma::engine
