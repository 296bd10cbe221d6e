// SHA-256 of eight messages at once, in the lanes of vectors, for CPUs without SHA instructions.
// All messages begin with the same 64 bytes.
//
// Threading: pure functions. Cost: no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "key/sha256.h"

namespace stemma::tier::object {

inline constexpr size_t kShaLanes = 8;

// SHA-256's state after its first block.
using ShaState = std::array<uint32_t, 8>;
ShaState state_after(const std::array<uint8_t, key::kSha256Block>& block) noexcept;

using ShaBlocks = std::array<std::array<uint8_t, key::kSha256Block>, kShaLanes>;
using ShaDigests = std::array<key::Digest, kShaLanes>;
// The digests of the messages, given the second and last block of each, with padding.
void digest_lanes(const ShaState& begun, const ShaBlocks& last, ShaDigests& digests) noexcept;
// The same without AVX2.
void digest_lanes_plain(const ShaState& begun, const ShaBlocks& last, ShaDigests& digests) noexcept;

}  // namespace stemma::tier::object
