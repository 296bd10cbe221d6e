// SHA-256 (FIPS 180-4), in-tree so that the core links no library. On first use it picks the CPU's
// SHA instructions if there are any.
//
// Threading:  the functions are thread-safe; a Sha256 is used by one thread at a time.
// Cost:       no allocation. Messages of at most kShortMessage bytes take two compressions at most
//             and are padded on the stack: about 90 ns with SHA instructions, 420 ns without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stemma::key {

using Digest = std::array<uint8_t, 32>;

inline constexpr size_t kSha256Block = 64;
// The longest message that fits two compressions with its padding (1 + 8 bytes).
inline constexpr size_t kShortMessage = 2 * kSha256Block - 9;

Digest sha256(std::span<const uint8_t> message) noexcept;

// Pads in place a message of `size` bytes that starts at `message`. Returns its number of 64-byte
// blocks. Requires room for them: size + 9, rounded up to 64.
size_t sha256_pad(uint8_t* message, size_t size) noexcept;

// Hashes a message that already carries its padding. A caller that hashes many messages of one
// shape pads once.
void sha256_padded(const uint8_t* blocks, size_t count, uint8_t* digest) noexcept;

// The state before the first block, FIPS 180-4 section 5.3.3.
inline constexpr std::array<uint32_t, 8> kSha256Initial = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// For messages that arrive in pieces.
class Sha256 {
 public:
  void update(std::span<const uint8_t> bytes) noexcept;
  // Ends the message. The object must not be used again.
  Digest finish() noexcept;

 private:
  std::array<uint32_t, 8> state_ = kSha256Initial;
  uint64_t total_bytes_ = 0;
  std::array<uint8_t, 2 * kSha256Block> pending_;  // Holds total_bytes_ % 64 bytes.
};

// Whether the SHA instructions are in use now.
bool sha256_uses_instructions() noexcept;

// For tests and benchmarks: true forces the portable path for later calls; false chooses by CPU
// again.
void force_portable_sha256(bool portable) noexcept;

}  // namespace stemma::key
