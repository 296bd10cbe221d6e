// How much memory this process may still take: what the machine has available, or less where a
// control group (a container, a systemd unit) sets a limit.
//
// Threading:  pure functions of the system's files.
// Cost:       a few small files of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stemma::engine {

struct FreeMemory {
  uint64_t bytes = 0;
  std::string limit;  // What decides, for people: "the machine" or "the control group /app".
};

// Returns nothing if the system does not tell. `root` is put in front of every path, for tests.
std::optional<FreeMemory> free_memory(const std::string& root = "");

}  // namespace stemma::engine
