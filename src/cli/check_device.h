// `stemma check-device NAME`, which `stemma serve` runs for each GPU before it loads a model (device_check.h). Not
// for people, so `stemma --help` does not list it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stemma::cli {

// Exit status: 0 the device computes, 1 not, 2 wrong arguments; or it is killed by what the device's library does.
int run_check_device(std::span<const std::string_view> arguments);

// Runs it for every kind of GPU that layers would be put on. "" or why one cannot compute, and what to do.
std::string check_gpus();

}  // namespace stemma::cli
