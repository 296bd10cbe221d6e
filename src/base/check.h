// STEMMA_CHECK guards our own books: a failure is a bug in Stemma, never an answer to a caller.
// No argument, call order, engine answer or stored byte can reach it. It reports to a handler the
// embedder may set (stemma/log.h), then stops the process, in every build. STEMMA_DCHECK is for
// checks too costly for release builds.
#pragma once

namespace stemma::base {

[[noreturn]] void check_failed(const char* file, int line, const char* what) noexcept;

}  // namespace stemma::base

#define STEMMA_CHECK(condition)                        \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::stemma::base::check_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define STEMMA_DCHECK(condition) static_cast<void>(0)
#else
#define STEMMA_DCHECK(condition) STEMMA_CHECK(condition)
#endif
