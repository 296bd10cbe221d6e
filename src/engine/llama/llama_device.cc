#include "engine/llama/llama_device.h"

#include <dlfcn.h>
#include <ggml-backend.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/llama/llama_library.h"

namespace stemma::engine {

namespace {

// The part of a plugin's file name for a backend, and llama.cpp's name for that backend.
struct GpuBackend {
  std::string_view in_file;
  const char* name;
};
constexpr std::array<GpuBackend, 6> kGpuBackends = {{{"cuda", "CUDA"},
                                                     {"vulkan", "Vulkan"},
                                                     {"hip", "ROCm"},
                                                     {"musa", "MUSA"},
                                                     {"sycl", "SYCL"},
                                                     {"opencl", "OpenCL"}}};

// "libggml-cuda.so" and "libggml-cuda-12.so" are for CUDA. Returns null if it is no GPU plugin.
const GpuBackend* backend_in(std::string_view file) {
  constexpr std::string_view kPrefix = "libggml-";
  if (!file.starts_with(kPrefix) || !file.ends_with(".so")) return nullptr;
  const std::string_view rest = file.substr(kPrefix.size());
  const auto* found = std::ranges::find_if(kGpuBackends, [&](const GpuBackend& each) {
    return rest.starts_with(each.in_file) &&
           (rest[each.in_file.size()] == '.' || rest[each.in_file.size()] == '-');
  });
  return found == kGpuBackends.end() ? nullptr : found;
}

bool is_gpu(ggml_backend_dev_t device) {
  const auto type = ggml_backend_dev_type(device);
  return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

// Why a plugin that was there when the library started offers no GPU; empty if it does.
std::string problem_of(const std::filesystem::path& file, const GpuBackend& backend) {
  if (ggml_backend_reg_t loaded = ggml_backend_reg_by_name(backend.name); loaded != nullptr) {
    for (size_t i = 0; i < ggml_backend_reg_dev_count(loaded); ++i) {
      if (is_gpu(ggml_backend_reg_dev_get(loaded, i))) return "";
    }
    const std::string none = std::string(backend.name) + " finds no GPU";
    const std::string error = start_error();
    return error.empty() ? none : none + " (" + error + ")";
  }
  void* const plugin = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    const char* error = dlerror();
    return explain_loader(error == nullptr ? "it cannot be loaded" : error);
  }
  dlclose(plugin);
  return "it is not a plugin of this release of llama.cpp";
}

std::vector<GpuPlugin> find_plugins() {
  std::vector<GpuPlugin> plugins;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(library_folder(), error)) {
    const std::string name = entry.path().filename().string();
    const GpuBackend* backend = backend_in(name);
    if (backend != nullptr) {
      plugins.push_back({name, problem_of(entry.path(), *backend)});
    }
  }
  std::ranges::sort(plugins, {}, &GpuPlugin::file);
  return plugins;
}

std::string plugin_of(ggml_backend_dev_t device, const std::vector<GpuPlugin>& plugins) {
  const std::string_view name = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
  for (const GpuPlugin& plugin : plugins) {
    if (plugin.problem.empty() && backend_in(plugin.file)->name == name) return plugin.file;
  }
  return "";
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20U) + " MiB"; }

// The messages of llama.cpp and its plugins when an allocation fails.
bool lacks_memory(std::string_view error) {
  return error.find("alloc") != std::string_view::npos ||
         error.find("memory") != std::string_view::npos;
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string all;
  for (const std::string& part : parts) {
    if (!all.empty()) all += between;
    all += part;
  }
  return all;
}

}  // namespace

GpuSearch find_gpus() {
  start_library();
  static const std::vector<GpuPlugin> plugins = find_plugins();

  GpuSearch found;
  found.plugins = plugins;
  // As llama.cpp chooses: a card that two plugins see counts once, and a GPU without memory of its
  // own counts only if there is no other.
  std::vector<std::string> ids;
  for (const auto type : {GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU}) {
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
      ggml_backend_dev_t device = ggml_backend_dev_get(i);
      if (ggml_backend_dev_type(device) != type) continue;
      ggml_backend_dev_props facts{};
      ggml_backend_dev_get_props(device, &facts);
      if (facts.device_id != nullptr) {
        if (std::ranges::find(ids, facts.device_id) != ids.end()) continue;
        ids.emplace_back(facts.device_id);
      }
      found.gpus.push_back({{.name = ggml_backend_dev_name(device),
                             .description = ggml_backend_dev_description(device),
                             .free_bytes = facts.memory_free,
                             .total_bytes = facts.memory_total},
                            plugin_of(device, plugins)});
    }
    if (!found.gpus.empty()) break;
  }
  return found;
}

std::string why_no_gpu(const GpuSearch& found) {
  if (!found.gpus.empty()) return "";
  if (found.plugins.empty()) {
    return "llama.cpp has no library for GPUs here (scripts/get-llama --cuda or --vulkan adds one)";
  }
  std::vector<std::string> problems;
  for (const GpuPlugin& plugin : found.plugins) {
    problems.push_back(plugin.file + ": " + plugin.problem);
  }
  return joined(problems, "; ");
}

std::string explain_loader(std::string_view error) {
  struct Known {
    std::string_view library;
    const char* meaning;
  };
  static constexpr Known kKnown[] = {
      {"libcuda.so", "NVIDIA's driver is not installed"},
      {"libcudart.so",
       "install this version of NVIDIA's CUDA toolkit, or run scripts/get-llama --cuda"},
      {"libcublas",
       "install this version of NVIDIA's CUDA toolkit, or run scripts/get-llama --cuda"},
      {"libvulkan.so", "install the Vulkan loader (libvulkan1) and the GPU's Vulkan driver"},
  };
  std::string text(error);
  // The loader's message starts with the missing library, without a folder.
  for (const Known& each : kKnown) {
    if (error.starts_with(each.library)) return text + " (" + each.meaning + ")";
  }
  return text;
}

std::string name_of(const ComputeDevice& device) {
  return device.description.empty() ? device.name : device.description + " (" + device.name + ")";
}

std::string describe(const Placement& placement) {
  if (placement.gpus.empty()) {
    return placement.why_cpu.empty() ? "CPU" : "CPU: " + placement.why_cpu;
  }
  std::vector<std::string> names;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  for (const ComputeDevice& gpu : placement.gpus) {
    names.push_back(name_of(gpu));
    free_bytes += gpu.free_bytes;
    total_bytes += gpu.total_bytes;
  }
  return joined(names, " + ") + ", " + std::to_string(placement.gpu_layers) + " of " +
         std::to_string(placement.layers) + " layers, " + std::to_string(free_bytes >> 20U) +
         " of " + mebibytes(total_bytes) + " free";
}

std::string weights_hint(std::string_view error, uint64_t model_bytes,
                         const std::vector<FoundGpu>& gpus) {
  if (gpus.empty() || !lacks_memory(error)) return "";
  std::vector<std::string> rooms;
  for (const FoundGpu& gpu : gpus) {
    rooms.push_back(name_of(gpu.device) + " had " + mebibytes(gpu.device.free_bytes));
  }
  return "the model has " + mebibytes(model_bytes) + ", and " + joined(rooms, ", ") +
         " free; put fewer layers there with --gpu-layers";
}

std::string context_hint(std::string_view error, const Placement& placement) {
  if (placement.gpus.empty() || !lacks_memory(error)) return "";
  return describe(placement) + "; choose a smaller --context or --batch, or fewer --gpu-layers";
}

std::string why_no_context(const ContextNeeds& needs, const Room& host, const Room& gpus) {
  if (needs.bytes_per_token == 0) return "";
  struct Place {
    const Room& room;
    double share;
    const char* otherwise;
  };
  for (const Place& place : {Place{gpus, needs.gpu_share, " (--context), or fewer --gpu-layers"},
                             Place{host, 1 - needs.gpu_share, ""}}) {
    if (place.share <= 0) continue;
    const auto part_of = [&](uint64_t bytes) {
      return static_cast<uint64_t>(static_cast<double>(bytes) * place.share);
    };
    const uint64_t fixed = part_of(needs.fixed_bytes);
    const uint64_t needed = part_of(needs.bytes_per_token * needs.tokens * needs.parts) + fixed;
    if (needed <= place.room.bytes) continue;
    const double token_bytes =
        static_cast<double>(needs.bytes_per_token) * needs.parts * place.share;
    const auto most = static_cast<uint64_t>(
        static_cast<double>(place.room.bytes - std::min(place.room.bytes, fixed)) / token_bytes);
    return "a context of " + std::to_string(needs.tokens) + " tokens" +
           (needs.parts == 1 ? "" : " for each of " + std::to_string(needs.parts) + " sequences") +
           " needs " + mebibytes(needed) + " for K and V (" +
           std::to_string(needs.bytes_per_token) + " bytes a token), but " + place.room.name +
           " has " + mebibytes(place.room.bytes) + " left; choose a context of at most " +
           std::to_string(most / kContextStep * kContextStep) + " tokens" + place.otherwise;
  }
  return "";
}

}  // namespace stemma::engine
