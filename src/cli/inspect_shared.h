// `stemma inspect` on the directory of a shared tier. It reads, and changes nothing.
#pragma once

#include <string>

namespace stemma::cli {

// Whether a marker of a shared tier lies there.
bool is_shared_directory(const std::string& dir);
// Lists its entries; `verify` reads them too. The exit code of the program.
int inspect_shared(const std::string& dir, bool verify, bool json);

}  // namespace stemma::cli
