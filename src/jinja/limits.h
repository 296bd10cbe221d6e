// What one rendering may use: far more than any conversation needs, but little for a server.
#pragma once

#include <cstdint>

namespace stemma::jinja {

struct Limits {
  uint64_t steps = 10'000'000;
  uint64_t work_bytes = uint64_t{256} << 20U;   // Of all values made.
  uint64_t output_bytes = uint64_t{64} << 20U;  // Of the text.
  uint32_t depth = 700;                         // Nesting of expressions, blocks and macros.
};

}  // namespace stemma::jinja
