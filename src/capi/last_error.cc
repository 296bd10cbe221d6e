#include "capi/last_error.h"

#include <cstdio>
#include <string_view>

namespace stemma::capi {
namespace {

struct LastError {
  const char* call = nullptr;
  Error error{Errc::invalid_argument, ""};
  bool in_words = false;
  char words[320] = "";
};
thread_local LastError last;

}  // namespace

stemma_status fail(const char* call, const Error& error) noexcept {
  last.call = call;
  last.error = error;
  last.in_words = false;
  return static_cast<stemma_status>(error.code());
}

static_assert(STEMMA_OUT_OF_BLOCKS == static_cast<int>(Errc::out_of_blocks));
static_assert(STEMMA_OVER_QUOTA == static_cast<int>(Errc::over_quota));
static_assert(STEMMA_OVER_PIN_SHARE == static_cast<int>(Errc::over_pin_share));
static_assert(STEMMA_OUT_OF_MEMORY == static_cast<int>(Errc::out_of_memory));
static_assert(STEMMA_BUSY == static_cast<int>(Errc::busy));
static_assert(STEMMA_INVALID_ARGUMENT == static_cast<int>(Errc::invalid_argument));
static_assert(STEMMA_OUT_OF_RANGE == static_cast<int>(Errc::out_of_range));
static_assert(STEMMA_WRONG_STATE == static_cast<int>(Errc::wrong_state));
static_assert(STEMMA_STALE == static_cast<int>(Errc::stale));
static_assert(STEMMA_UNSUPPORTED == static_cast<int>(Errc::unsupported));
static_assert(STEMMA_COPY_FAILED == static_cast<int>(Errc::copy_failed));
static_assert(STEMMA_CORRUPT == static_cast<int>(Errc::corrupt));

}  // namespace stemma::capi

using namespace stemma;
using namespace stemma::capi;

const char* stemma_last_error_message(void) {
  if (last.call == nullptr) return "";
  if (!last.in_words) {
    const std::string_view code = to_string(last.error.code());
    const int written =
        std::snprintf(last.words, sizeof last.words, "%s: %.*s: %s", last.call,
                      static_cast<int>(code.size()), code.data(), last.error.message());
    if (last.error.value() != Error::kNoValue && written > 0 &&
        static_cast<size_t>(written) < sizeof last.words) {
      std::snprintf(last.words + written, sizeof last.words - written, " (%u)", last.error.value());
    }
    last.in_words = true;
  }
  return last.words;
}

uint32_t stemma_last_error_value(void) {
  return last.call == nullptr ? Error::kNoValue : last.error.value();
}

const char* stemma_status_name(stemma_status status) {
  return status == STEMMA_OK ? "ok" : to_string(static_cast<Errc>(status)).data();
}
