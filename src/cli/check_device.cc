#include "cli/check_device.h"

#include <cstdio>

#ifdef STEMMA_HAS_ENGINE_LLAMA

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <set>

#include "engine/llama/device_check.h"
#include "engine/llama/llama_library.h"

namespace stemma::cli {

int run_check_device(std::span<const std::string_view> arguments) {
  if (arguments.size() != 1) {
    std::fputs("usage: stemma check-device NAME\n", stderr);
    return 2;
  }
  // If the driver crashes here, only the reason matters: write no core file, and let no debugger
  // inspect the stack.
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  setenv("GGML_NO_BACKTRACE", "1", 1);
  engine::set_llama_log(
      [](bool, const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  const std::string why = engine::compute_on(std::string(arguments.front()));
  if (why.empty()) return 0;
  std::fprintf(stderr, "%s\n", why.c_str());
  return 1;
}

std::string check_gpus() {
  // Starting a driver takes seconds on machines with many GPUs.
  constexpr std::chrono::seconds kPatience{60};
  // One of several equal cards is enough.
  std::set<std::string> kinds;
  for (const engine::FoundGpu& gpu : engine::find_gpus().gpus) {
    if (!kinds.insert(gpu.plugin + " " + gpu.device.description).second) continue;
    const engine::ChildEnd end =
        engine::run_child({"/proc/self/exe", "check-device", gpu.device.name}, kPatience);
    if (std::string why = engine::why_gpu_fails(gpu, end); !why.empty()) return why;
  }
  return "";
}

}  // namespace stemma::cli

#else

namespace stemma::cli {

int run_check_device(std::span<const std::string_view> /*arguments*/) {
  std::fputs("stemma check-device: this program was built without llama.cpp\n", stderr);
  return 1;
}
std::string check_gpus() { return ""; }

}  // namespace stemma::cli

#endif
