// The SHA-256 step that has two implementations, and nothing else. sha256_ni.cc includes no header
// with inline functions, so none is compiled with instructions that the CPU may lack.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace stemma::key {

// K of FIPS 180-4 section 4.2.2.
alignas(64) extern const uint32_t kSha256Rounds[64];

// Advances `state` over `count` blocks of 64 bytes. Both functions require a CPU with SHA, SSE4.1
// and SSSE3; sha256.cc, which is built for any CPU, checks.
void sha256_ni_compress(uint32_t* state, const uint8_t* blocks, size_t count) noexcept;

// The same, then writes the state as the digest's 32 bytes, high byte of each word first.
void sha256_ni_digest(const uint32_t* state, const uint8_t* blocks, size_t count,
                      uint8_t* digest) noexcept;

}  // namespace stemma::key
