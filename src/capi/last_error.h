// Where a thread's last error waits for somebody to ask about it.
//
// Failing is cheap: the parts are noted, and become a sentence only when somebody asks for it.
// Threading: each thread has its own.
#pragma once

#include <cstdint>
#include <exception>
#include <new>

#include "stemma/result.h"
#include "stemma/stemma.h"

namespace stemma::capi {

// Notes the error under the name of the call (a literal, or __func__) and returns its status.
[[gnu::cold]] stemma_status fail(const char* call, const Error& error) noexcept;
inline stemma_status end(const char* call, const Result<void>& outcome) noexcept {
  return outcome ? STEMMA_OK : fail(call, outcome.error());
}

// Runs `body`, which returns a Result<void>, and turns anything that it throws into an error.
template <class Body>
Result<void> caught(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "the system gave no memory");
  } catch (...) {
    return Error(Errc::out_of_memory, "the library could not allocate what the call needs");
  }
}

}  // namespace stemma::capi
