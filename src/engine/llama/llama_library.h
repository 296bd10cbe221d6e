// llama.cpp's library in this process: starts it once, loads its plugins, and listens to its log.
//
// llama.cpp says why something failed only in its log. So a caller forgets the errors so far, makes
// the call, and then asks for the first error since.
//
// Threading:  thread-safe.
#pragma once

#include <functional>
#include <string>

namespace stemma::engine {

// Loads the plugins that lie beside the library, or where the system has them. Does nothing from
// the second call on.
void start_library();

// The first error while the plugins were loaded; empty if there was none. This shows a driver that
// does not start.
std::string start_error();

// The folder of the library; empty if the system does not tell.
std::string library_folder();

// llama.cpp's own log: warnings and worse, one line a call. Set before the first model is loaded.
void set_llama_log(std::function<void(bool error, const std::string& line)> log);

void forget_errors();
// The first error in the log since forget_errors(); empty if there was none. Later errors usually
// follow from the first.
std::string first_error();
// The last error in the log, ever; empty if there was none, or if the log is being written right
// now. Never waits.
std::string last_error();
// "what (the first error)".
std::string with_reason(const std::string& what);

}  // namespace stemma::engine
