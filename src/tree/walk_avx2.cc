// walk.h for machines with AVX2. Compiled with those instructions; runs only where they exist.
#if defined(__x86_64__)

#include <immintrin.h>

#include "tree/walk.h"

namespace stemma::tree {
namespace {

struct Compare {
  static constexpr uint32_t kTokens = 16;
  void begin() { bits_ = _mm256_setzero_si256(); }
  bool equal(const uint32_t* cell, const uint32_t* query, uint32_t) {
    const auto* c = reinterpret_cast<const __m256i*>(cell);
    const auto* q = reinterpret_cast<const __m256i*>(query);
    const __m256i q0 = _mm256_loadu_si256(q);
    const __m256i q1 = _mm256_loadu_si256(q + 1);
    const __m256i different = _mm256_or_si256(_mm256_xor_si256(_mm256_load_si256(c), q0),
                                              _mm256_xor_si256(_mm256_load_si256(c + 1), q1));
    if (_mm256_testz_si256(different, different) == 0) return false;
    bits_ = _mm256_or_si256(bits_, _mm256_or_si256(q0, q1));
    return true;
  }
  uint32_t bits() const {
    alignas(32) uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), bits_);
    uint32_t all = 0;
    for (uint32_t lane : lanes) all |= lane;
    return all;
  }
  __m256i bits_;
};

}  // namespace

#include "tree/walk_body.h"

WalkResult walk_avx2(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                     CellIndex* path) {
  return walk_with_compare(view, root, query, cells, path);
}

}  // namespace stemma::tree

#endif
