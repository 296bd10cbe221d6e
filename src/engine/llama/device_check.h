// Whether a GPU can compute with the plugin that offers it, found out before a model is loaded.
//
// A plugin has code for some kinds of GPU. On another kind it loads, finds the GPU and its memory, and ends the
// process at the first thing that it has to compute. So something small is computed in a process of its own first,
// and what that says as it dies is read.
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

// Multiplies and adds small matrices on the device, by llama.cpp's name of it ("CUDA0", "CPU"). "" or what is wrong.
// May end the process instead: for that other process.
std::string compute_on(const std::string& device);

// How a process ended.
struct ChildEnd {
  enum class How : unsigned char { not_started, exited, killed, too_slow };
  How how = How::not_started;
  int code = 0;        // The exit status, or the signal.
  std::string output;  // The first kilobytes of what it wrote, to either output.
};
// Runs a program, with nothing to read, until it ends; one that takes longer than `patience` is killed.
ChildEnd run_child(const std::vector<std::string>& command, std::chrono::milliseconds patience);

// "" if the GPU has computed, or if nothing could be found out. Otherwise why it cannot, and what to do.
std::string why_gpu_fails(const FoundGpu& gpu, const ChildEnd& end);

}  // namespace stemma::engine
