#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/slab.h"
#include "stemma/log.h"
#include "stemma/result.h"

namespace stemma {
namespace {

// A handler together with its argument: no caller sees one without the other.
template <class Handler>
class Callback {
 public:
  void set(Handler handler, void* user) noexcept {
    const base::MutexLock lock(mutex_);
    handler_ = handler;
    user_ = user;
  }
  std::pair<Handler, void*> get() noexcept {
    const base::MutexLock lock(mutex_);
    return {handler_, user_};
  }

 private:
  base::Mutex mutex_;
  Handler handler_ STEMMA_GUARDED_BY(mutex_) = nullptr;
  void* user_ STEMMA_GUARDED_BY(mutex_) = nullptr;
};

constinit Callback<LogHandler> log_callback;
constinit Callback<FatalHandler> fatal_callback;

[[noreturn]] void stop(std::string_view what) noexcept {
  if (const auto [handler, user] = fatal_callback.get(); handler != nullptr) {
    handler(what, user);
  } else {
    std::fprintf(stderr, "stemma: %.*s\n", static_cast<int>(what.size()), what.data());
  }
  std::abort();
}

}  // namespace

void set_log_handler(LogHandler handler, void* user) noexcept { log_callback.set(handler, user); }

void log(LogLevel level, std::string_view line) noexcept {
  const auto [handler, user] = log_callback.get();
  if (handler != nullptr) handler(level, line, user);
}

void set_fatal_handler(FatalHandler handler, void* user) noexcept {
  fatal_callback.set(handler, user);
}

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::out_of_blocks: return "out_of_blocks";
    case Errc::over_quota: return "over_quota";
    case Errc::over_pin_share: return "over_pin_share";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::busy: return "busy";
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::out_of_range: return "out_of_range";
    case Errc::wrong_state: return "wrong_state";
    case Errc::stale: return "stale";
    case Errc::unsupported: return "unsupported";
    case Errc::copy_failed: return "copy_failed";
    case Errc::corrupt: return "corrupt";
  }
  return "unknown";
}

int print_value(const Error& error, char* out, size_t size) noexcept {
  if (size != 0) out[0] = '\0';
  if (error.value_ == Error::kNoValue) return 0;
  char group[24] = "";
  const bool too_many = error.about_ == Error::About::too_many;
  if (error.group_ != kMaxGroups) {
    std::snprintf(group, sizeof group, " %s group %u", too_many ? "for" : "in", error.group_);
  }
  const char* what = error.about_ == Error::About::number ? ""
                     : too_many                           ? " too many"
                                                          : " missing";
  return std::snprintf(out, size, " (%u%s%s)", error.value_, what, group);
}

std::string Error::to_string() const {
  char number[64];
  print_value(*this, number, sizeof number);
  std::string text(stemma::to_string(code()));
  text += ": ";
  text += message_;
  text += number;
  return text;
}

void fail_unchecked_result(const Error& error) noexcept {
  // No std::string: the message may be that memory has run out.
  char text[512];
  char number[64];
  print_value(error, number, sizeof number);
  const std::string_view code = to_string(error.code());
  std::snprintf(text, sizeof text, "a Result was opened although it holds an error: %.*s: %s%s",
                static_cast<int>(code.size()), code.data(), error.message(), number);
  stop(text);
}

namespace base {

namespace {
std::atomic<int64_t> slab_grants{kUnlimited};
}  // namespace

int64_t refuse_slab_memory_after(int64_t times) noexcept {
  return slab_grants.exchange(times, std::memory_order_relaxed);
}

bool slab_memory_refused() noexcept {
  int64_t left = slab_grants.load(std::memory_order_relaxed);
  while (left > 0 &&
         !slab_grants.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left == 0;
}

void check_failed(const char* file, int line, const char* what) noexcept {
  char text[512];
  std::snprintf(text, sizeof text, "broken invariant at %s:%d: %s", file, line, what);
  stop(text);
}

}  // namespace base
}  // namespace stemma
