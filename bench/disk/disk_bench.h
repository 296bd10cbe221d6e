// `stemma bench disk`: the disk tier beside what its disk can do.
#pragma once

#include <span>
#include <string_view>

namespace stemma::bench::disk {

// Returns the exit code: 0 done, 1 an answer was wrong or (--strict) a limit was missed, 2 bad
// arguments.
int run_disk_bench(std::span<const std::string_view> words);

}  // namespace stemma::bench::disk
