// `stemma inspect` on the directory of a shared tier. It only reads.
#pragma once

#include <string>

namespace stemma::cli {

// Whether the directory has the marker of a shared tier.
bool is_shared_directory(const std::string& dir);
// Lists its entries; with `verify`, reads them too. Returns the exit code of the program.
int inspect_shared(const std::string& dir, bool verify, bool json);

}  // namespace stemma::cli
