// Passes this library's errors to libstemma.so, where callers look for them.
#include "capi/mover/handles.h"

namespace stemma::capi {

stemma_status fail(const char* call, const Error& error) noexcept {
  return stemma_fail(call, static_cast<stemma_status>(error.code()), error.message(),
                     error.value());
}

}  // namespace stemma::capi
