#include "tier/object/sha256_lanes.h"

#include "key/sha256_compress.h"

namespace stemma::tier::object {

namespace {

// One word of each message. The compiler maps it to the machine's vectors: one of AVX2's, or two of
// SSE2's. It is passed by reference, because only some CPUs can pass it in a register.
using Lanes = uint32_t __attribute__((vector_size(4 * kShaLanes)));
using Words = Lanes[64];

#define STEMMA_ALWAYS_INLINE [[gnu::always_inline]] inline

uint32_t big_endian(const uint8_t* from) noexcept {
  return uint32_t{from[0]} << 24U | uint32_t{from[1]} << 16U | uint32_t{from[2]} << 8U | from[3];
}

// x rotated right by three numbers of bits, xor-ed. Part of all functions of FIPS 180-4 here.
template <uint32_t kA, uint32_t kB, uint32_t kC>
STEMMA_ALWAYS_INLINE void mix(const Lanes& x, Lanes& out) noexcept {
  out = ((x >> kA) | (x << (32 - kA))) ^ ((x >> kB) | (x << (32 - kB))) ^
        ((x >> kC) | (x << (32 - kC)));
}
template <uint32_t kA, uint32_t kB, uint32_t kShift>
STEMMA_ALWAYS_INLINE void mix_shifted(const Lanes& x, Lanes& out) noexcept {
  out = ((x >> kA) | (x << (32 - kA))) ^ ((x >> kB) | (x << (32 - kB))) ^ (x >> kShift);
}

// The first 16 words as they are, the others as FIPS 180-4 section 6.2.2 defines them.
STEMMA_ALWAYS_INLINE void schedule(const ShaBlocks& blocks, Words& w) noexcept {
  for (uint32_t i = 0; i < 16; ++i) {
    for (uint32_t lane = 0; lane < kShaLanes; ++lane) w[i][lane] = big_endian(&blocks[lane][4 * i]);
  }
  for (uint32_t i = 16; i < 64; ++i) {
    Lanes s0, s1;
    mix_shifted<7, 18, 3>(w[i - 15], s0);
    mix_shifted<17, 19, 10>(w[i - 2], s1);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
}

STEMMA_ALWAYS_INLINE void digest(const ShaState& begun, const ShaBlocks& last,
                                 ShaDigests& digests) noexcept {
  Words w;
  schedule(last, w);
  Lanes state[8];
  for (uint32_t i = 0; i < 8; ++i) state[i] = Lanes{} + begun[i];
  Lanes a = state[0], b = state[1], c = state[2], d = state[3];
  Lanes e = state[4], f = state[5], g = state[6], h = state[7];
  for (uint32_t i = 0; i < 64; ++i) {
    Lanes s0, s1;
    mix<6, 11, 25>(e, s1);
    mix<2, 13, 22>(a, s0);
    const Lanes t1 = h + s1 + (g ^ (e & (f ^ g))) + key::kSha256Rounds[i] + w[i];
    const Lanes t2 = s0 + ((a & b) | (c & (a | b)));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const Lanes ended[8] = {state[0] + a, state[1] + b, state[2] + c, state[3] + d,
                          state[4] + e, state[5] + f, state[6] + g, state[7] + h};
  for (uint32_t lane = 0; lane < kShaLanes; ++lane) {
    for (uint32_t i = 0; i < 32; ++i) {
      digests[lane][i] = static_cast<uint8_t>(ended[i / 4][lane] >> (24 - 8 * (i % 4)));
    }
  }
}

#undef STEMMA_ALWAYS_INLINE

void digest_plain(const ShaState& begun, const ShaBlocks& last, ShaDigests& digests) noexcept {
  digest(begun, last, digests);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void digest_avx2(const ShaState& begun, const ShaBlocks& last,
                                         ShaDigests& digests) noexcept {
  digest(begun, last, digests);
}
#endif

using Digest = void (*)(const ShaState&, const ShaBlocks&, ShaDigests&) noexcept;
Digest choose() noexcept {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0) return digest_avx2;
#endif
  return digest_plain;
}

}  // namespace

ShaState state_after(const std::array<uint8_t, key::kSha256Block>& block) noexcept {
  key::Digest bytes;
  key::sha256_padded(block.data(), 1, bytes.data());  // The state is the digest of one block.
  ShaState state;
  for (uint32_t i = 0; i < 8; ++i) state[i] = big_endian(&bytes[4 * i]);
  return state;
}

void digest_lanes(const ShaState& begun, const ShaBlocks& last, ShaDigests& digests) noexcept {
  static const Digest kChosen = choose();
  kChosen(begun, last, digests);
}

void digest_lanes_plain(const ShaState& begun, const ShaBlocks& last,
                        ShaDigests& digests) noexcept {
  digest_plain(begun, last, digests);
}

}  // namespace stemma::tier::object
