// How much of a prompt goes into one forward pass.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma::server {

// Returns where the next chunk ends: at `stop` if at most `most` tokens lie before it. Otherwise
// the chunk has `most` tokens, or fewer so that at least 64 remain for the last chunk: fewer than
// 64 tokens are slow to compute by themselves.
constexpr uint32_t end_of_chunk(uint32_t begin, uint32_t stop, uint32_t most) noexcept {
  constexpr uint32_t kLeast = 64;
  const uint32_t full = std::min(stop - begin, most);
  const uint32_t rest = stop - begin - full;
  const uint32_t missing = rest == 0 || rest >= kLeast ? 0 : kLeast - rest;
  return begin + (full >= kLeast + missing ? full - missing : full);
}

}  // namespace stemma::server
