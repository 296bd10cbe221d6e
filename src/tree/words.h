// Reads and writes the words of cells, which optimistic readers may read while they change. Plain
// builds use vector loads and copies; ThreadSanitizer builds use word-wise atomics, so that every
// other race stays visible.
#pragma once

#include <cstdint>
#include <cstring>

#include "key/words.h"

namespace stemma::tree {

#if defined(STEMMA_TSAN)
inline uint32_t load_word(const uint32_t* word) noexcept {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
inline void store_word(uint32_t* word, uint32_t value) noexcept {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
#else
inline uint32_t load_word(const uint32_t* word) noexcept { return *word; }
inline void store_word(uint32_t* word, uint32_t value) noexcept { *word = value; }
#endif

// Writes `count` words and pads to `tokens`.
inline void store_words(uint32_t* cell, const uint32_t* words, uint32_t count, uint32_t tokens) {
#if defined(STEMMA_TSAN)
  for (uint32_t i = 0; i < count; ++i) store_word(cell + i, words[i]);
#else
  if (count == 16 && tokens == 16) {  // The usual cell, without a call.
    std::memcpy(cell, words, 64);
    return;
  }
  if (count != 0) std::memcpy(cell, words, count * sizeof(uint32_t));
#endif
  for (uint32_t i = count; i < tokens; ++i) store_word(cell + i, key::kPadWord);
}

// The number of leading words that two arrays share, at most `limit`.
inline uint32_t common_words(const uint32_t* a, const uint32_t* b, uint32_t limit) noexcept {
  uint32_t i = 0;
  while (i < limit && load_word(a + i) == load_word(b + i)) ++i;
  return i;
}

}  // namespace stemma::tree
