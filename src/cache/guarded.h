// What every public call goes through: no exception leaves the library.
#pragma once

#include <new>

#include "stemma/log.h"
#include "stemma/result.h"

namespace stemma::cache {

// Turns std::bad_alloc inside a public call into out_of_memory. The throwing code has changed
// nothing.
template <class Call>
auto guarded(Call&& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "the system gave no memory for this call");
  }
}

// Logs the text that `line` returns, or nothing if memory runs out.
template <class Line>
void log_line(LogLevel level, Line&& line) noexcept {
  try {
    log(level, line());
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace stemma::cache
