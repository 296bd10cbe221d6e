// Describes the machine that the numbers were measured on.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "bench/support.h"
#include "stemma/version.h"

// The build system defines these; a bare compiler call does without.
#ifndef STEMMA_COMPILER
#define STEMMA_COMPILER __VERSION__
#endif
#ifndef STEMMA_BUILD_TYPE
#define STEMMA_BUILD_TYPE "unknown"
#endif
#ifndef STEMMA_BUILD_FLAGS
#define STEMMA_BUILD_FLAGS ""
#endif

namespace stemma::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown cpu";
}

// One level's size as the kernel names it, "1024K"; empty if unknown.
std::string cache_size(int index) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
  std::string size;
  file >> size;
  return size;
}

double clock_cost_ns() {
  constexpr int kCalls = 1000;
  const double total = time_ns([] {
    for (int i = 0; i < kCalls; ++i) keep(now_ns());
  });
  return total / kCalls;
}

}  // namespace

double waited_seconds() {
  std::ifstream file("/proc/thread-self/schedstat");
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;
  file >> ran_ns >> waited_ns;
  return static_cast<double>(waited_ns) * 1e-9;
}

std::string describe_machine() {
  std::string out =
      "machine: " + cpu_model() + ", " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " cores";
  if (const std::string l2 = cache_size(2); !l2.empty()) out += ", L2 " + l2;
  if (const std::string l3 = cache_size(3); !l3.empty()) out += ", L3 " + l3;
  double load = 0;
  if (getloadavg(&load, 1) == 1) out += ", load " + format("%.2f", load);
  out += ", reading the clock takes " + format("%.0f ns", clock_cost_ns()) + "\n";

  out += "build:   stemma " + std::string(version_string()) + ", " + STEMMA_COMPILER +
         ", build type " + STEMMA_BUILD_TYPE;
  if (!std::string_view(STEMMA_BUILD_FLAGS).empty()) {
    out += " (" + std::string(STEMMA_BUILD_FLAGS) + ")";
  }
  out += ", in use:";
  bool any = false;
  for (const char* feature : {"avx512", "avx2", "sha_ni"}) {
    if (!has_feature(feature)) continue;
    out += std::string(" ") + feature;
    any = true;
  }
  if (!any) out += " plain x86-64 or other";
#ifndef NDEBUG
  out += "\nwarning: assertions are on; these are not release numbers";
#endif
  return out + "\n";
}

}  // namespace stemma::bench
