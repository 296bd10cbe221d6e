#include "tree/walk.h"

#include "tree/words.h"

namespace stemma::tree {
namespace {

struct Compare {
  static constexpr uint32_t kTokens = 0;
  void begin() {}
  bool equal(const uint32_t* cell, const uint32_t* query, uint32_t tokens) {
    uint32_t different = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < tokens; ++i) {
      different |= load_word(cell + i) ^ query[i];
      seen |= query[i];
    }
    if (different != 0) return false;
    bits_ |= seen;
    return true;
  }
  uint32_t bits() const { return bits_; }
  uint32_t bits_ = 0;
};

}  // namespace
}  // namespace stemma::tree

namespace stemma::tree {
#include "tree/walk_body.h"

WalkResult walk_plain(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                      CellIndex* path) {
  return walk_with_compare(view, root, query, cells, path);
}

bool cpu_has_avx2() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

bool cpu_has_avx512() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
  return false;
#endif
}

WalkFunction choose_walk(uint32_t cell_tokens) noexcept {
#if defined(__x86_64__) && !defined(STEMMA_TSAN)
  if (cell_tokens == 16 && cpu_has_avx512()) return walk_avx512;
  if (cell_tokens == 16 && cpu_has_avx2()) return walk_avx2;
#endif
  (void)cell_tokens;
  return walk_plain;
}

}  // namespace stemma::tree
