// walk.h for machines with AVX-512. Compiled with those instructions; runs only where they exist.
#if defined(__x86_64__)

#include <immintrin.h>

#include "tree/walk.h"

namespace stemma::tree {
namespace {

struct Compare {
  static constexpr uint32_t kTokens = 16;
  void begin() { bits_ = _mm512_setzero_si512(); }
  bool equal(const uint32_t* cell, const uint32_t* query, uint32_t) {
    const __m512i q = _mm512_loadu_si512(query);
    if (_mm512_cmpneq_epi32_mask(_mm512_load_si512(cell), q) != 0) return false;
    bits_ = _mm512_or_si512(bits_, q);
    return true;
  }
  uint32_t bits() const {
    alignas(64) uint32_t lanes[16];
    _mm512_store_si512(lanes, bits_);
    uint32_t all = 0;
    for (uint32_t lane : lanes) all |= lane;
    return all;
  }
  __m512i bits_;
};

}  // namespace

#include "tree/walk_body.h"

WalkResult walk_avx512(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                       CellIndex* path) {
  return walk_with_compare(view, root, query, cells, path);
}

}  // namespace stemma::tree

#endif
