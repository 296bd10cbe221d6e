// A checksum of bytes. Its words may be summed in any order, by any number of threads, on a CPU or
// a GPU.
//
// A word is 8 bytes, little-endian; the last one is padded with zeros. Each word and its index give
// a term, and the checksum is the sum of all terms modulo 2^64. So any code that handles a part of
// the bytes can sum that part, and the parts are added.
//
// Invariant:  a change of one word always changes the sum: at one index, different words give
//             different terms. Other damage (several words, swapped words) goes unnoticed once in
//             2^64. It detects damage and is not a signature.
// Threading:  pure functions. Cost: a pass over the bytes, about as fast as memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#ifdef __CUDACC__
#define STEMMA_HOST_DEVICE __host__ __device__
#else
#define STEMMA_HOST_DEVICE
#endif

namespace stemma::base {

inline constexpr uint64_t kWordKey = 0x9E37'79B9'7F4A'7C15U;

// Within 2^30 words, no two indices have keys with equal upper halves. So equal changes of two
// words cannot cancel each other.
STEMMA_HOST_DEVICE constexpr uint64_t word_key(uint64_t index) noexcept {
  return (index + 1) * kWordKey;
}
STEMMA_HOST_DEVICE constexpr uint64_t word_term(uint64_t word, uint64_t key) noexcept {
  uint64_t mixed = word ^ key;
  mixed ^= mixed >> 32U;
  mixed *= (key >> 32U) | 1U;
  return mixed ^ mixed >> 32U;
}

// The sum of bytes that begin at word `first_word` of their whole.
uint64_t word_sum(std::span<const uint8_t> bytes, uint64_t first_word = 0) noexcept;
// The same, and copies the bytes to `to` in one pass, bypassing the CPU caches. Other threads see
// the copy after this thread has called end_of_word_copies().
uint64_t word_sum_copy(std::span<const uint8_t> bytes, uint8_t* to,
                       uint64_t first_word = 0) noexcept;
void end_of_word_copies() noexcept;

}  // namespace stemma::base
