// llama.cpp's library in this process: it is started once, its plugins are loaded, and its log is heard.
//
// llama.cpp says why something failed only in its log. So whoever calls it forgets the errors so far, calls, and
// asks for the first error since.
//
// Threading:  thread-safe.
#pragma once

#include <functional>
#include <string>

namespace stemma::engine {

// Loads the plugins that lie beside the library, or where the system has them. Does nothing from the second call on.
void start_library();

// The first error while the plugins were loaded; empty if there was none. A driver that does not start is named so.
std::string start_error();

// The folder of the library; empty if the system does not tell.
std::string library_folder();

// llama.cpp's own log: warnings and worse, one line a call. Set before the first model is loaded.
void set_llama_log(std::function<void(bool error, const std::string& line)> log);

void forget_errors();
// The first error in the log since then; empty if there was none. What follows from it comes after it.
std::string first_error();
// "what (the first error)".
std::string with_reason(const std::string& what);

}  // namespace stemma::engine
