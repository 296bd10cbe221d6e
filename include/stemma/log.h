// How Stemma reports to the embedder: one callback for log lines, one for broken invariants.
// Threading: thread-safe; set handlers once, before creating caches.
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

enum class LogLevel : uint8_t { debug, info, warning, error };

// Called without any lock held, from any thread: something was created (info), failed but was
// handled (warning), or was refused as broken (error). Lines are rare: a request that succeeds
// writes none.
using LogHandler = void (*)(LogLevel level, std::string_view line, void* user);

// nullptr (the default) drops every line.
void set_log_handler(LogHandler handler, void* user) noexcept;
void log(LogLevel level, std::string_view line) noexcept;

// Called with a description when Stemma finds its own books broken, just before it stops the
// process. The default writes the description to standard error.
using FatalHandler = void (*)(std::string_view what, void* user);
void set_fatal_handler(FatalHandler handler, void* user) noexcept;

}  // namespace stemma
