// Passes this library's errors and log lines to libstemma.so, where callers look for them.
#include <cstdio>
#include <string_view>

#include "capi/tiers/handles.h"
#include "stemma/log.h"

namespace stemma::capi {

const char kNoted[] = "noted by libstemma.so";

stemma_status fail(const char* call, const Error& error) noexcept {
  if (error.message() == kNoted) return static_cast<stemma_status>(error.code());
  return stemma_fail(call, static_cast<stemma_status>(error.code()), error.message(),
                     error.value());
}

void join_log() noexcept {
  static const bool once = [] {
    set_log_handler(
        [](LogLevel level, std::string_view line, void*) {
          stemma_log(static_cast<uint32_t>(level), line.data(), line.size());
        },
        nullptr);
    set_fatal_handler(
        [](std::string_view what, void*) {
          stemma_log(STEMMA_LOG_ERROR, what.data(), what.size());
          std::fprintf(stderr, "stemma: %.*s\n", static_cast<int>(what.size()), what.data());
        },
        nullptr);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace stemma::capi
