// Checks whether a GPU can compute with the plugin that offers it, before a model is loaded.
//
// A plugin has code for some kinds of GPU. On another kind it loads, finds the GPU and its memory,
// and ends the process at the first computation. So a separate process computes something small
// first, and its last output is read if it dies.
//
// Threading:  thread-safe.
// Cost:       a process that starts the GPU's driver, usually less than a second.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "engine/llama/llama_device.h"

namespace stemma::engine {

// Multiplies and adds small matrices on the device, named as in llama.cpp ("CUDA0", "CPU"). Returns
// "" or what is wrong. May end the process, so call it only in that separate process.
std::string compute_on(const std::string& device);

// How a process ended.
struct ChildEnd {
  enum class How : unsigned char { not_started, exited, killed, too_slow };
  How how = How::not_started;
  int code = 0;        // The exit status, or the signal.
  std::string output;  // The first kilobytes of what it wrote, to either output.
};
// Runs a program with empty input until it ends; kills it after `patience`.
ChildEnd run_child(const std::vector<std::string>& command, std::chrono::milliseconds patience);

// Returns "" if the GPU could compute, or if the check found out nothing. Otherwise why the GPU
// cannot compute, and what to do.
std::string why_gpu_fails(const FoundGpu& gpu, const ChildEnd& end);

}  // namespace stemma::engine
