// How much of a prompt goes into one forward pass.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma::server {

// Where the next chunk ends: at `stop` if no more than `most` tokens lie before it. Otherwise the chunk is full,
// unless that would leave fewer than 64 tokens for the one that follows, which are slow to compute by themselves:
// then it leaves 64.
constexpr uint32_t end_of_chunk(uint32_t begin, uint32_t stop, uint32_t most) noexcept {
  constexpr uint32_t kLeast = 64;
  const uint32_t full = std::min(stop - begin, most);
  const uint32_t rest = stop - begin - full;
  const uint32_t missing = rest == 0 || rest >= kLeast ? 0 : kLeast - rest;
  return begin + (full >= kLeast + missing ? full - missing : full);
}

}  // namespace stemma::server
