// Calls that do not concern one cache: version, handlers, scopes, keys.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/lock.h"
#include "capi/decode.h"
#include "capi/last_error.h"
#include "stemma/log.h"
#include "stemma/version.h"

using namespace stemma;
using namespace stemma::capi;

namespace {

// A handler together with its user pointer, so that no thread ever sees one without the other. They
// are kept: another thread may be calling one that was just replaced.
template <class Handler>
struct WithUser {
  Handler handler;
  void* user;
};
template <class Handler>
WithUser<Handler>* keep(Handler handler, void* user) {
  static base::WaitMutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<WithUser<Handler>>>;
  const base::Lock lock(mutex);
  for (const auto& old : *kept) {
    if (old->handler == handler && old->user == user) return old.get();
  }
  return kept->emplace_back(new WithUser<Handler>{handler, user}).get();
}

}  // namespace

stemma_version_numbers stemma_version(void) {
  const Version v = version();
  return {v.major, v.minor, v.patch};
}

const char* stemma_version_string(void) { return version_string(); }

int32_t stemma_has_feature(const char* name) {
  return name != nullptr && has_feature(name) ? 1 : 0;
}

const char* stemma_outcome_name(uint32_t outcome) {
  return outcome < kOutcomeCount ? to_string(static_cast<Outcome>(outcome)) : "unknown";
}

const char* stemma_miss_reason_name(uint32_t reason) {
  return reason < kMissReasonCount ? to_string(static_cast<MissReason>(reason)) : "unknown";
}

stemma_status stemma_set_log_handler(stemma_log_fn handler, void* user) {
  return end(__func__, caught([&]() -> Result<void> {
               if (handler == nullptr) return set_log_handler(nullptr, nullptr), Result<void>();
               set_log_handler(
                   [](LogLevel level, std::string_view line, void* both) {
                     const auto* to = static_cast<WithUser<stemma_log_fn>*>(both);
                     to->handler(to->user, static_cast<uint32_t>(level), line.data(), line.size());
                   },
                   keep(handler, user));
               return {};
             }));
}

void stemma_log(uint32_t level, const char* line, size_t size) {
  if (line == nullptr || size > kMaxBytes) return;
  const auto known = level <= STEMMA_LOG_ERROR ? static_cast<LogLevel>(level) : LogLevel::error;
  log(known, {line, size});
}

stemma_status stemma_set_fatal_handler(stemma_fatal_fn handler, void* user) {
  return end(__func__, caught([&]() -> Result<void> {
               if (handler == nullptr) return set_fatal_handler(nullptr, nullptr), Result<void>();
               set_fatal_handler(
                   [](std::string_view what, void* both) {
                     const auto* to = static_cast<WithUser<stemma_fatal_fn>*>(both);
                     to->handler(to->user, what.data(), what.size());
                   },
                   keep(handler, user));
               return {};
             }));
}

stemma_status stemma_scope_make(const stemma_scope_spec* spec, stemma_scope* out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
               STEMMA_TRY(const Scope scope, decode(spec));
               std::memcpy(out->digest, scope.digest().data(), sizeof out->digest);
               return {};
             }));
}

stemma_status stemma_content_key_hex(const stemma_content_key* key, char out[65]) {
  return end(__func__, caught([&]() -> Result<void> {
               if (key == nullptr) return Error(Errc::invalid_argument, "key is null");
               if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
               ContentKey copy;
               std::memcpy(copy.bytes.data(), key->bytes, sizeof key->bytes);
               std::memcpy(out, copy.hex().c_str(), 65);
               return {};
             }));
}

static_assert(STEMMA_LOG_ERROR == static_cast<int>(LogLevel::error));
