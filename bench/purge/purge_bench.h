// `stemma bench purge`: how long it takes to forget one of many scopes, on every tier that leaves
// the process.
#pragma once

#include <span>
#include <string_view>

namespace stemma::bench::purge {

int run_purge_bench(std::span<const std::string_view> words);

}  // namespace stemma::bench::purge
