#include "engine/llama/device_check.h"

#include <fcntl.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "engine/llama/llama_library.h"

namespace stemma::engine {

namespace {

constexpr int64_t kSide = 64;
constexpr size_t kOutputBytes = 16U << 10U;

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* what) const {
    Free(what);
  }
};
using Backend = std::unique_ptr<ggml_backend, FreeWith<ggml_backend_free>>;
using Tensors = std::unique_ptr<ggml_context, FreeWith<ggml_free>>;
using Memory = std::unique_ptr<ggml_backend_buffer, FreeWith<ggml_backend_buffer_free>>;

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
};

// Starts it with both outputs into the pipe and no signal blocked. Returns 0 if it cannot start.
pid_t spawn(const std::vector<std::string>& command, const Pipe& pipe) {
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe.ends[1], 1);
  posix_spawn_file_actions_adddup2(&files, pipe.ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  if (posix_spawn(&child, arguments[0], &files, &attributes, arguments.data(), environ) != 0) {
    child = 0;
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return child;
}

// Reads until the other end of the pipe is closed. Returns false if that takes too long.
bool read_all(int fd, std::chrono::milliseconds patience, std::string& output) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    char piece[4096];
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    output.append(piece,
                  std::min<size_t>(got, kOutputBytes - std::min(kOutputBytes, output.size())));
  }
}

// The most telling line of the output: the first that mentions an error, otherwise the first.
std::string telling_line(std::string_view output) {
  std::string first;
  while (!output.empty()) {
    const size_t end = std::min(output.find('\n'), output.size());
    const std::string line(output.substr(0, end));
    output.remove_prefix(std::min(end + 1, output.size()));
    if (line.find("error") != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first;
}

}  // namespace

std::string compute_on(const std::string& device) {
  start_library();
  ggml_backend_dev_t found = ggml_backend_dev_by_name(device.c_str());
  if (found == nullptr) return "there is no device " + device;
  const Backend backend(ggml_backend_dev_init(found, nullptr));
  if (backend == nullptr) return with_reason(device + " does not start");

  const Tensors tensors(ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                   .mem_buffer = nullptr,
                                   .no_alloc = true}));
  if (tensors == nullptr) return "no memory";
  ggml_tensor* halves = ggml_new_tensor_2d(tensors.get(), GGML_TYPE_F16, kSide, kSide);
  ggml_tensor* ones = ggml_new_tensor_2d(tensors.get(), GGML_TYPE_F32, kSide, kSide);
  // The multiplication may be NVIDIA's own code; the addition is always the plugin's.
  ggml_tensor* sums = ggml_add(tensors.get(), ggml_mul_mat(tensors.get(), halves, ones), ones);
  ggml_cgraph* graph = ggml_new_graph(tensors.get());
  ggml_build_forward_expand(graph, sums);
  const Memory memory(ggml_backend_alloc_ctx_tensors(tensors.get(), backend.get()));
  if (memory == nullptr) return with_reason(device + " has no memory for a small matrix");
  const std::vector<ggml_fp16_t> half(kSide * kSide, ggml_fp32_to_fp16(0.5F));
  std::vector<float> numbers(kSide * kSide, 1.0F);
  ggml_backend_tensor_set(halves, half.data(), 0, half.size() * sizeof half[0]);
  ggml_backend_tensor_set(ones, numbers.data(), 0, numbers.size() * sizeof numbers[0]);
  if (ggml_backend_graph_compute(backend.get(), graph) != GGML_STATUS_SUCCESS) {
    return with_reason(device + " did not compute");
  }
  ggml_backend_tensor_get(sums, numbers.data(), 0, numbers.size() * sizeof numbers[0]);
  constexpr float kRight = kSide * 0.5F + 1;
  const bool right = std::ranges::all_of(numbers, [](float each) { return each == kRight; });
  return right ? "" : device + " computes wrong numbers";
}

ChildEnd run_child(const std::vector<std::string>& command, std::chrono::milliseconds patience) {
  ChildEnd end;
  Pipe pipe;
  if (command.empty() || pipe.ends[0] < 0) return end;
  const pid_t child = spawn(command, pipe);
  if (child == 0) return end;
  pipe.close_end(1);
  const bool in_time = read_all(pipe.ends[0], patience, end.output);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.how = !in_time              ? ChildEnd::How::too_slow
            : WIFSIGNALED(status) ? ChildEnd::How::killed
                                  : ChildEnd::How::exited;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

std::string why_gpu_fails(const FoundGpu& gpu, const ChildEnd& end) {
  const std::string name = name_of(gpu.device);
  const std::string with = gpu.plugin.empty() ? "" : " with " + gpu.plugin;
  const std::string otherwise = "; with --gpu-layers 0 the CPU computes";
  switch (end.how) {
    case ChildEnd::How::not_started: return "";
    case ChildEnd::How::exited:
      if (end.code == 0) return "";
      break;
    case ChildEnd::How::too_slow: return name + " does not answer" + with + otherwise;
    case ChildEnd::How::killed: break;
  }
  // The messages of CUDA, and of llama.cpp for GPUs that are too old for its code.
  const bool lacks_code = end.output.find("no kernel image") != std::string::npos ||
                          end.output.find("not compiled") != std::string::npos ||
                          end.output.find("no device code") != std::string::npos;
  if (lacks_code) {
    return (gpu.plugin.empty() ? "the library" : gpu.plugin) + " has no code for " + name +
           "; scripts/get-llama --cuda compiles one that has" + otherwise;
  }
  const std::string line = telling_line(end.output);
  return name + " cannot compute" + with + (line.empty() ? "" : ": " + line) + otherwise;
}

}  // namespace stemma::engine
