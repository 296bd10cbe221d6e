#include "base/word_sum.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stemma::base {
namespace {

constexpr size_t kWord = 8;
constexpr size_t kLine = 64;

uint64_t plain_words(const uint8_t* at, size_t words, uint64_t first_word) noexcept {
  uint64_t sum = 0;
  uint64_t key = word_key(first_word);
  for (size_t i = 0; i < words; ++i, key += kWordKey) {
    uint64_t word;
    std::memcpy(&word, at + i * kWord, kWord);
    sum += word_term(word, key);
  }
  return sum;
}

uint64_t tail(std::span<const uint8_t> rest, uint64_t index) noexcept {
  if (rest.empty()) return 0;
  uint64_t word = 0;
  std::memcpy(&word, rest.data(), rest.size());
  return word_term(word, word_key(index));
}

#if defined(__x86_64__)
// Reading ahead: by itself, the processor does not prefetch past a page of 4 KiB.
constexpr size_t kAhead = 2048;

// NOLINTBEGIN(portability-simd-intrinsics): the same terms as above, four at a time.
// `to` is null, or a multiple of 32 where it is not: then the lines are copied there.
template <bool kCopy>
__attribute__((target("avx2"))) uint64_t lines_avx2(const uint8_t* at, uint8_t* to, size_t lines,
                                                    uint64_t first_word) noexcept {
  const auto lane_key = [first_word](uint64_t i) {
    return static_cast<int64_t>(word_key(first_word + i));
  };
  __m256i key = _mm256_setr_epi64x(lane_key(0), lane_key(1), lane_key(2), lane_key(3));
  const __m256i step = _mm256_set1_epi64x(static_cast<int64_t>(4 * kWordKey));
  const __m256i one = _mm256_set1_epi64x(1);
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (; lines != 0; --lines, at += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
    for (size_t i = 0; i < 2; ++i) {
      const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * i));
      if constexpr (kCopy) _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32 * i), word);
      __m256i mixed = _mm256_xor_si256(word, key);
      mixed = _mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 32));
      const __m256i factor = _mm256_or_si256(_mm256_srli_epi64(key, 32), one);
      const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), factor);
      mixed = _mm256_add_epi64(_mm256_mul_epu32(mixed, factor), _mm256_slli_epi64(high, 32));
      mixed = _mm256_xor_si256(mixed, _mm256_srli_epi64(mixed, 32));
      sums[i] = _mm256_add_epi64(sums[i], mixed);
      key = _mm256_add_epi64(key, step);
    }
    if constexpr (kCopy) to += kLine;
  }
  alignas(32) uint64_t four[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(four), _mm256_add_epi64(sums[0], sums[1]));
  return four[0] + four[1] + four[2] + four[3];
}
// NOLINTEND(portability-simd-intrinsics)

bool has_avx2() noexcept {
  static const bool kHas = __builtin_cpu_supports("avx2") != 0;
  return kHas;
}
#endif

}  // namespace

uint64_t word_sum(std::span<const uint8_t> bytes, uint64_t first_word) noexcept {
  size_t done = 0;
  uint64_t sum = 0;
#if defined(__x86_64__)
  if (has_avx2()) {
    done = bytes.size() / kLine * kLine;
    sum = lines_avx2<false>(bytes.data(), nullptr, done / kLine, first_word);
  }
#endif
  const size_t words = (bytes.size() - done) / kWord;
  sum += plain_words(bytes.data() + done, words, first_word + done / kWord);
  done += words * kWord;
  return sum + tail(bytes.subspan(done), first_word + done / kWord);
}

uint64_t word_sum_copy(std::span<const uint8_t> bytes, uint8_t* to, uint64_t first_word) noexcept {
#if defined(__x86_64__)
  if (has_avx2() && reinterpret_cast<uintptr_t>(to) % 32 == 0 && bytes.size() >= kLine) {
    const size_t lines = bytes.size() / kLine;
    const size_t done = lines * kLine;
    const uint64_t sum = lines_avx2<true>(bytes.data(), to, lines, first_word);
    const auto rest = bytes.subspan(done);
    if (!rest.empty()) std::memcpy(to + done, rest.data(), rest.size());
    return sum + word_sum(rest, first_word + done / kWord);
  }
#endif
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return word_sum(bytes, first_word);
}

void end_of_word_copies() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace stemma::base
