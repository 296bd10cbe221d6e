// Ids of answers, calls and items.
#pragma once

#include <string>
#include <string_view>

namespace stemma::server {

// An id that cannot be guessed: `prefix` and 22 letters and digits that encode 128 random bits.
// Threading: thread-safe. Cost: one system call.
std::string random_id(std::string_view prefix);

}  // namespace stemma::server
