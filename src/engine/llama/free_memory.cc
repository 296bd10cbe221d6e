#include "engine/llama/free_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace stemma::engine {

namespace {

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return {};
  return value;
}

// The number that a file consists of, if any ("max" means no limit).
std::optional<uint64_t> number_of(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return {};
  return number_in(word);
}

// The number behind a name at the beginning of a line.
std::optional<uint64_t> number_named(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    if (words >> first >> second && first == name) return number_in(second);
  }
  return {};
}

// The file names of one version of control groups.
struct Files {
  std::string folder;
  const char* limit;
  const char* used;
  const char* reclaimable;  // The part of the used memory that holds files nobody read lately.
};

// Looks at a group and all groups around it.
void look_at_groups(const Files& files, std::string group, FreeMemory& least) {
  for (;;) {
    const std::string folder = files.folder + (group == "/" ? "" : group) + "/";
    const std::optional<uint64_t> limit = number_of(folder + files.limit);
    const std::optional<uint64_t> used = number_of(folder + files.used);
    if (limit && used) {
      const uint64_t files_bytes =
          number_named(folder + "memory.stat", files.reclaimable).value_or(0);
      const uint64_t needed = *used - std::min(*used, files_bytes);
      const uint64_t left = *limit - std::min(*limit, needed);
      if (left < least.bytes) least = {left, "the control group " + group};
    }
    if (group.empty() || group == "/") return;
    group.resize(std::max<size_t>(group.rfind('/'), 1));
  }
}

}  // namespace

std::optional<FreeMemory> free_memory(const std::string& root) {
  const std::optional<uint64_t> kilobytes = number_named(root + "/proc/meminfo", "MemAvailable:");
  if (!kilobytes) return {};
  FreeMemory least{*kilobytes * 1024, "the machine"};
  std::ifstream groups(root + "/proc/self/cgroup");
  // Version 2 has one line, "0::/group"; version 1 one for each controller, "9:memory:/group".
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (group.empty() || group.front() != '/') continue;
    if (controllers == ",,") {
      look_at_groups({root + "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
                     group, least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      look_at_groups({root + "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                      "memory.usage_in_bytes", "total_inactive_file"},
                     group, least);
    }
  }
  return least;
}

}  // namespace stemma::engine
