// `stemma serve`: the server.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

int run_serve(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
