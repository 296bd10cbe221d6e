// `stemma check-device NAME`: `stemma serve` runs it for each GPU before it loads a model
// (device_check.h). It is not for people, so `stemma --help` does not list it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 the device computes, 1 it does not, 2 bad arguments. A fault in the
// device's library may kill the process instead.
int run_check_device(std::span<const std::string_view> arguments);

// Runs it for every kind of GPU that would get layers. Returns "", or why a GPU cannot compute and
// what to do about it.
std::string check_gpus();

}  // namespace stemma::cli
