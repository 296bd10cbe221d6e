#include "engine/llama/llama_abort.h"

#include <ggml.h>

#include <cstdio>

#include "engine/llama/llama_library.h"

namespace stemma::engine {

namespace {

void on_abort(const char* message) {
  const std::string words = explain_abort(message == nullptr ? "" : message, last_error()) + "\n";
  // Not through the log: its writer would not run any more.
  std::fputs(words.c_str(), stderr);
  std::fflush(stderr);
}

bool is_of_gpu(const std::string& text) {
  for (const char* word : {"CUDA", "cuda", "cublas", "vk::", "Vulkan", "vulkan"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string explain_abort(const std::string& message, const std::string& reason) {
  std::string words = "llama.cpp cannot go on, and this process ends: ";
  words += reason.empty() ? message : reason + " (" + message + ")";
  if (is_of_gpu(message) || is_of_gpu(reason)) {
    words +=
        ". The GPU failed or was lost. Nothing that was under way has been answered or saved. See "
        "what "
        "nvidia-smi and the kernel's log say of it; start the server again, with --gpu-layers 0 to "
        "do "
        "without the GPU";
  }
  return words + ".";
}

void explain_aborts() { ggml_set_abort_callback(on_abort); }

}  // namespace stemma::engine
