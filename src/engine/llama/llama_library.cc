#include "engine/llama/llama_library.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <llama.h>

#include <filesystem>
#include <mutex>
#include <utility>

#include "base/lock.h"
#include "engine/llama/llama_abort.h"

namespace stemma::engine {

namespace {

struct LibraryLog {
  base::WaitMutex mutex;
  std::function<void(bool, const std::string&)> sink STEMMA_GUARDED_BY(mutex);
  std::string line STEMMA_GUARDED_BY(mutex);
  std::string first_error STEMMA_GUARDED_BY(mutex);
  std::string last_error STEMMA_GUARDED_BY(mutex);
  std::string start_error STEMMA_GUARDED_BY(mutex);
};
LibraryLog& the_log() {
  static LibraryLog log;
  return log;
}

void hear(ggml_log_level level, const char* text, void* /*user*/) {
  LibraryLog& log = the_log();
  const base::Lock lock(log.mutex);
  if (level != GGML_LOG_LEVEL_CONT) log.line.clear();
  if (level != GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_ERROR) return;
  log.line += text;
  if (log.line.empty() || log.line.back() != '\n') return;
  log.line.pop_back();
  if (level == GGML_LOG_LEVEL_ERROR && log.first_error.empty()) log.first_error = log.line;
  // Continuation lines begin with a space.
  if (level == GGML_LOG_LEVEL_ERROR && !log.line.starts_with(' ')) log.last_error = log.line;
  if (log.sink) log.sink(level == GGML_LOG_LEVEL_ERROR, log.line);
  log.line.clear();
}

}  // namespace

void start_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(hear, nullptr);
    explain_aborts();
    forget_errors();
    // The CPU's code is a plugin too.
    if (const std::string folder = library_folder(); !folder.empty()) {
      ggml_backend_load_all_from_path(folder.c_str());
    }
    if (ggml_backend_dev_count() == 0) ggml_backend_load_all();
    llama_backend_init();
    const base::Lock lock(the_log().mutex);
    the_log().start_error = the_log().first_error;
  });
}

std::string start_error() {
  const base::Lock lock(the_log().mutex);
  return the_log().start_error;
}

std::string last_error() {
  LibraryLog& log = the_log();
  if (!log.mutex.try_lock()) return "";
  std::string error = log.last_error;
  log.mutex.unlock();
  return error;
}

std::string library_folder() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&llama_backend_init), &library) == 0 ||
      library.dli_fname == nullptr) {
    return "";
  }
  return std::filesystem::path(library.dli_fname).parent_path().string();
}

void set_llama_log(std::function<void(bool, const std::string&)> log) {
  const base::Lock lock(the_log().mutex);
  the_log().sink = std::move(log);
}

void forget_errors() {
  const base::Lock lock(the_log().mutex);
  the_log().first_error.clear();
}

std::string first_error() {
  const base::Lock lock(the_log().mutex);
  return the_log().first_error;
}

std::string with_reason(const std::string& what) {
  const std::string reason = first_error();
  return reason.empty() ? what : what + " (" + reason + ")";
}

}  // namespace stemma::engine
