// SHA-256 on the x86 SHA extensions.
//
// The functions carry their target themselves, so the file compiles with or without -msha. The
// instructions want the state as two registers, {A,B,E,F} and {C,D,G,H}, high word first, and do
// two rounds each; four of them and a schedule step make the quarter of sixteen rounds below.
#include "key/sha256_compress.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define STEMMA_SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

namespace stemma::key {
namespace {

struct State {
  __m128i abef, cdgh;
};

STEMMA_SHA_TARGET inline __m128i swap_mask() {
  return _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
}

STEMMA_SHA_TARGET inline State load(const uint32_t* state) {
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
  return {_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xF0)};
}

STEMMA_SHA_TARGET inline void store(const State& s, __m128i* dcba, __m128i* hgfe) {
  const __m128i feba = _mm_shuffle_epi32(s.abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xB1);
  *dcba = _mm_blend_epi16(feba, dchg, 0xF0);
  *hgfe = _mm_alignr_epi8(dchg, feba, 8);
}

// Four rounds with the message words w, of which `round` is the first.
STEMMA_SHA_TARGET inline void four_rounds(State& s, __m128i w, int round) {
  const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kSha256Rounds + round));
  const __m128i wk = _mm_add_epi32(w, k);
  s.cdgh = _mm_sha256rnds2_epu32(s.cdgh, s.abef, wk);
  s.abef = _mm_sha256rnds2_epu32(s.abef, s.cdgh, _mm_shuffle_epi32(wk, 0x0E));
}

// The next four words of the schedule, from the sixteen before them.
STEMMA_SHA_TARGET inline __m128i next_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3) {
  const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
  return _mm_sha256msg2_epu32(sum, w3);
}

STEMMA_SHA_TARGET inline void compress(State& s, const uint8_t* blocks, size_t count) {
  const __m128i mask = swap_mask();
  for (; count != 0; --count, blocks += 64) {
    const State before = s;
    const __m128i* from = reinterpret_cast<const __m128i*>(blocks);
    __m128i w0 = _mm_shuffle_epi8(_mm_loadu_si128(from), mask);
    __m128i w1 = _mm_shuffle_epi8(_mm_loadu_si128(from + 1), mask);
    __m128i w2 = _mm_shuffle_epi8(_mm_loadu_si128(from + 2), mask);
    __m128i w3 = _mm_shuffle_epi8(_mm_loadu_si128(from + 3), mask);
    four_rounds(s, w0, 0);
    four_rounds(s, w1, 4);
    four_rounds(s, w2, 8);
    four_rounds(s, w3, 12);
#pragma GCC unroll 3
    for (int round = 16; round < 64; round += 16) {
      w0 = next_words(w0, w1, w2, w3);
      four_rounds(s, w0, round);
      w1 = next_words(w1, w2, w3, w0);
      four_rounds(s, w1, round + 4);
      w2 = next_words(w2, w3, w0, w1);
      four_rounds(s, w2, round + 8);
      w3 = next_words(w3, w0, w1, w2);
      four_rounds(s, w3, round + 12);
    }
    s.abef = _mm_add_epi32(s.abef, before.abef);
    s.cdgh = _mm_add_epi32(s.cdgh, before.cdgh);
  }
}

}  // namespace

STEMMA_SHA_TARGET void sha256_ni_compress(uint32_t* state, const uint8_t* blocks,
                                          size_t count) noexcept {
  State s = load(state);
  compress(s, blocks, count);
  __m128i dcba, hgfe;
  store(s, &dcba, &hgfe);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), dcba);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), hgfe);
}

// Two 16-byte stores: a chain reads the digest back at once with loads of that size, and narrower
// stores would not forward to them.
STEMMA_SHA_TARGET void sha256_ni_digest(const uint32_t* state, const uint8_t* blocks, size_t count,
                                        uint8_t* digest) noexcept {
  State s = load(state);
  compress(s, blocks, count);
  __m128i dcba, hgfe;
  store(s, &dcba, &hgfe);
  __m128i* to = reinterpret_cast<__m128i*>(digest);
  _mm_storeu_si128(to, _mm_shuffle_epi8(dcba, swap_mask()));
  _mm_storeu_si128(to + 1, _mm_shuffle_epi8(hgfe, swap_mask()));
}

}  // namespace stemma::key

#else

namespace stemma::key {

void sha256_ni_compress(uint32_t*, const uint8_t*, size_t) noexcept {}
void sha256_ni_digest(const uint32_t*, const uint8_t*, size_t, uint8_t*) noexcept {}

}  // namespace stemma::key

#endif
