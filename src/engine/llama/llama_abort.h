// What happens when llama.cpp gives up. It ends the process if a device fails or is lost, and there
// is no way to go on. So the process prints a helpful reason and ends at once: nothing that was
// under way is answered or saved.
//
// Threading:  any thread of llama.cpp's.
#pragma once

#include <string>

namespace stemma::engine {

// From now on llama.cpp prints an explanation to standard error before it ends the process.
void explain_aborts();

// Explains llama.cpp's `message`, and the last error in its log (empty if there was none).
std::string explain_abort(const std::string& message, const std::string& reason);

}  // namespace stemma::engine
