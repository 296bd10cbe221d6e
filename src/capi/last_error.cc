#include "capi/last_error.h"

#include <cstdio>
#include <string_view>

namespace stemma::capi {
namespace {

struct LastError {
  const char* call = nullptr;
  Error error{Errc::invalid_argument, ""};
  bool in_words = false;
  bool foreign = false;  // Set by stemma_fail(): call and message are copies.
  char foreign_call[64] = "";
  char foreign_message[192] = "";
  char words[320] = "";
};
thread_local LastError last;

}  // namespace

stemma_status fail(const char* call, const Error& error) noexcept {
  last.call = call;
  last.error = error;
  last.in_words = false;
  last.foreign = false;
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

stemma_status stemma_fail(const char* call, stemma_status status, const char* message,
                          uint32_t value) {
  const bool known = status > STEMMA_OK && status <= STEMMA_CORRUPT;
  const Errc code = known ? static_cast<Errc>(status) : Errc::invalid_argument;
  fail("", Error(code, "", value));
  // The library that set it may be unloaded when the message is read.
  last.foreign = true;
  std::snprintf(last.foreign_call, sizeof last.foreign_call, "%s", call != nullptr ? call : "");
  std::snprintf(last.foreign_message, sizeof last.foreign_message, "%s",
                message != nullptr ? message : "");
  return static_cast<stemma_status>(code);
}

const char* stemma_last_error_message(void) {
  if (last.call == nullptr) return "";
  if (!last.in_words) {
    const std::string_view code = to_string(last.error.code());
    const int written =
        std::snprintf(last.words, sizeof last.words, "%s: %.*s: %s",
                      last.foreign ? last.foreign_call : last.call, static_cast<int>(code.size()),
                      code.data(), last.foreign ? last.foreign_message : last.error.message());
    if (written > 0 && static_cast<size_t>(written) < sizeof last.words) {
      print_value(last.error, last.words + written, sizeof last.words - written);
    }
    last.in_words = true;
  }
  return last.words;
}

uint32_t stemma_last_error_value(void) {
  return last.call == nullptr ? Error::kNoValue : last.error.value();
}

uint32_t stemma_last_error_group(void) {
  return last.call == nullptr ? STEMMA_MAX_GROUPS : last.error.group();
}

int32_t stemma_last_error_never_fits(void) {
  return last.call != nullptr && last.error.never_fits() ? 1 : 0;
}

const char* stemma_status_name(stemma_status status) {
  return status == STEMMA_OK ? "ok" : to_string(static_cast<Errc>(status)).data();
}
