#include "stemma/byte_sum.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/random.h"
#endif

namespace stemma {
namespace {

constexpr size_t kLineBytes = 64;
constexpr uint32_t kLines = 16;  // Between two scrambles.
constexpr uint64_t kPrime = 0x9E37'79B1U;

// Line l has keys l to l + 7; the scramble has those after the last line's.
constexpr size_t kScramble = kLines + 8;
constexpr std::array<uint64_t, kScramble + 8> kKeys = [] {
  std::array<uint64_t, kScramble + 8> keys{};
  uint64_t state = 0x2545'F491'4F6C'DD1DU;
  for (uint64_t& key : keys) key = base::next_random(state);
  return keys;
}();

// All 128 bits of a product, folded.
uint64_t fold(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return a ^ b ^ static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
}

struct Lines {
  const uint8_t* at;
  size_t count;
  const uint8_t* from;
  uint8_t* to;
};

#if defined(__x86_64__)
// Reading ahead: by itself, the processor does not prefetch past a page of 4 KiB.
constexpr size_t kAhead = 2048;

// NOLINTBEGIN(portability-simd-intrinsics): the same sums as below, in vectors.
#define STEMMA_BYTE_SUM_LOAD(at) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))
template <bool kCopy>
__attribute__((target("avx2"))) uint32_t take_avx2(Lines it, uint64_t* lanes, uint32_t line) {
  const __m256i prime = _mm256_set1_epi64x(kPrime);
  __m256i lane[2] = {STEMMA_BYTE_SUM_LOAD(lanes), STEMMA_BYTE_SUM_LOAD(lanes + 4)};
  for (; it.count != 0; --it.count, it.at += kLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(it.at) + kAhead, _MM_HINT_T0);
    for (size_t i = 0; i < 2; ++i) {
      const __m256i word = STEMMA_BYTE_SUM_LOAD(it.at + 32 * i);
      const __m256i keyed = _mm256_xor_si256(word, STEMMA_BYTE_SUM_LOAD(&kKeys[line + 4 * i]));
      const __m256i neighbour = _mm256_shuffle_epi32(word, _MM_SHUFFLE(1, 0, 3, 2));
      const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
      lane[i] = _mm256_add_epi64(_mm256_add_epi64(lane[i], neighbour), product);
    }
    if constexpr (kCopy) {
      for (size_t i = 0; i < kLineBytes; i += 32) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(it.to + i),
                            STEMMA_BYTE_SUM_LOAD(it.from + i));
      }
      it.from += kLineBytes;
      it.to += kLineBytes;
    }
    if (++line < kLines) continue;
    line = 0;
    for (size_t i = 0; i < 2; ++i) {
      const __m256i key = STEMMA_BYTE_SUM_LOAD(&kKeys[kScramble + 4 * i]);
      const __m256i mixed =
          _mm256_xor_si256(_mm256_xor_si256(lane[i], _mm256_srli_epi64(lane[i], 47)), key);
      const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
      lane[i] = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes + 4 * i), lane[i]);
  }
  return line;
}
#undef STEMMA_BYTE_SUM_LOAD
// NOLINTEND(portability-simd-intrinsics)
#endif

uint32_t take_plain(Lines it, uint64_t* lanes, uint32_t line) noexcept {
  if (it.to != nullptr) std::memcpy(it.to, it.from, it.count * kLineBytes);
  for (; it.count != 0; --it.count, it.at += kLineBytes) {
    for (size_t i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, it.at + 8 * i, sizeof word);
      const uint64_t keyed = word ^ kKeys[line + i];
      lanes[i ^ 1U] += word;
      lanes[i] += (keyed & 0xFFFF'FFFFU) * (keyed >> 32U);
    }
    if (++line < kLines) continue;
    line = 0;
    for (size_t i = 0; i < 8; ++i) {
      lanes[i] = (lanes[i] ^ lanes[i] >> 47U ^ kKeys[kScramble + i]) * kPrime;
    }
  }
  return line;
}

}  // namespace

void ByteSum::take(const uint8_t* at, size_t lines, const uint8_t* from, uint8_t* to) noexcept {
  static_assert(kLine == kLineBytes);
#if defined(__x86_64__)
  static const bool kFast = __builtin_cpu_supports("avx2");
  if (kFast) {
    line_ = to == nullptr ? take_avx2<false>({at, lines, from, to}, lanes_.data(), line_)
                          : take_avx2<true>({at, lines, from, to}, lanes_.data(), line_);
    return;
  }
#endif
  line_ = take_plain({at, lines, from, to}, lanes_.data(), line_);
}

void ByteSum::end_of_copies() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

uint64_t ByteSum::value() const noexcept {
  ByteSum last = *this;
  std::fill(last.rest_.begin() + static_cast<ptrdiff_t>(waiting_), last.rest_.end(), uint8_t{0});
  last.line_ = take_plain({last.rest_.data(), 1, nullptr, nullptr}, last.lanes_.data(), line_);
  uint64_t sum = size_ * kPrime;
  for (size_t i = 0; i < kLanes; i += 2) {
    sum += fold(sum ^ last.lanes_[i] ^ kKeys[i], last.lanes_[i + 1] ^ kKeys[kScramble + i]);
  }
  sum = (sum ^ sum >> 37U) * 0x1656'67B1'9E37'79F9U;
  return sum ^ sum >> 32U;
}

}  // namespace stemma
