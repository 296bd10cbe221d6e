// `stemma bench redis`: the Redis tier beside a client that only moves bytes, on the same server in
// the same run.
#pragma once

#include <span>
#include <string_view>

namespace stemma::bench::redis {

int run_redis_bench(std::span<const std::string_view> words);

}  // namespace stemma::bench::redis
