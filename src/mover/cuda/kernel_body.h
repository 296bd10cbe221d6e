// How a group of lanes copies one piece: the body of the kernel. On a GPU the lanes are a warp;
// tests run the same code on a CPU, lane by lane.
//
// Each lane takes every lanes-th word, and returns its share of the piece's sum. A piece whose
// shape is `wide` goes in words of 16 bytes, kUnroll of them in flight for each lane: reads over
// the link take about a microsecond, so many have to be under way. Other pieces go byte by byte.
//
// Invariant:  every byte is read once, and what was read is what is written and summed.
#pragma once

#include "mover/piece.h"

namespace stemma::mover {

inline constexpr uint32_t kUnroll = 4;

struct alignas(16) Wide {
  uint64_t low, high;
};

STEMMA_HOST_DEVICE inline Wide read_wide(uint64_t address) {
#ifdef __CUDA_ARCH__
  const ulonglong2 v = __ldcs(reinterpret_cast<const ulonglong2*>(address));
  return {v.x, v.y};
#else
  return *reinterpret_cast<const Wide*>(address);
#endif
}

STEMMA_HOST_DEVICE inline void write_wide(uint64_t address, Wide value) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<ulonglong2*>(address), make_ulonglong2(value.low, value.high));
#else
  *reinterpret_cast<Wide*>(address) = value;
#endif
}

// Where a piece's byte `at` is on its two sides.
STEMMA_HOST_DEVICE inline uint64_t in_page(const Piece& piece, const Shape& shape, uint32_t at) {
  return piece.page + distance_in_page(shape, piece.first + at);
}
STEMMA_HOST_DEVICE inline uint64_t opposite(const Piece& piece, const Shape& shape, Way way,
                                            uint32_t at) {
  return piece.packed +
         (way == Way::between_pages ? distance_in_page(shape, piece.first + at) : at);
}

STEMMA_HOST_DEVICE inline uint64_t term(const Piece& piece, uint32_t index, uint64_t word) {
  return base::word_term(word, base::word_key(uint64_t{piece.word} + index));
}

template <bool kSum>
STEMMA_HOST_DEVICE uint64_t move_wide(const Piece& piece, const Shape& shape, Way way,
                                      uint32_t lane, uint32_t lanes) {
  const uint32_t words = piece.bytes / sizeof(Wide);
  uint64_t sum = 0;
  for (uint32_t begin = lane; begin < words; begin += lanes * kUnroll) {
    Wide value[kUnroll];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t i = begin + u * lanes;
      if (i < words) {
        value[u] = read_wide(way == Way::to_pages ? opposite(piece, shape, way, i * 16)
                                                  : in_page(piece, shape, i * 16));
      }
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t i = begin + u * lanes;
      if (i >= words) continue;
      if (way == Way::to_pages) {
        write_wide(in_page(piece, shape, i * 16), value[u]);
      } else if (way != Way::sum_pages) {
        write_wide(opposite(piece, shape, way, i * 16), value[u]);
      }
      if (kSum) sum += term(piece, 2 * i, value[u].low) + term(piece, 2 * i + 1, value[u].high);
    }
  }
  return sum;
}

// Any shape. Bytes at or after shape.bytes are padding: zeros that no page has.
STEMMA_HOST_DEVICE inline uint64_t move_bytes(const Piece& piece, const Shape& shape, Way way,
                                              uint32_t lane, uint32_t lanes) {
  uint64_t sum = 0;
  for (uint32_t i = lane; uint64_t{i} * 8 < piece.bytes; i += lanes) {
    uint64_t word = 0;
    for (uint32_t b = 0; b < 8 && i * 8 + b < piece.bytes; ++b) {
      const uint32_t at = i * 8 + b;
      const bool real = piece.first + at < shape.bytes;
      uint8_t byte = 0;
      if (way == Way::to_pages) {
        byte = *reinterpret_cast<const volatile uint8_t*>(opposite(piece, shape, way, at));
        if (real) *reinterpret_cast<volatile uint8_t*>(in_page(piece, shape, at)) = byte;
      } else {
        if (real) byte = *reinterpret_cast<const volatile uint8_t*>(in_page(piece, shape, at));
        if (way != Way::sum_pages) {
          *reinterpret_cast<volatile uint8_t*>(opposite(piece, shape, way, at)) = byte;
        }
      }
      word |= uint64_t{byte} << 8 * b;
    }
    sum += term(piece, i, word);
  }
  return sum;
}

// One lane's share.
template <bool kSum>
STEMMA_HOST_DEVICE uint64_t move_piece(const Piece& piece, const Shape& shape, Way way,
                                       uint32_t lane, uint32_t lanes) {
  if (way == Way::between_pages) {
    const Shape part = first_tokens(shape, piece.tokens);
    return part.wide != 0 ? move_wide<false>(piece, part, way, lane, lanes)
                          : move_bytes(piece, part, way, lane, lanes);
  }
  return shape.wide != 0 ? move_wide<kSum>(piece, shape, way, lane, lanes)
                         : move_bytes(piece, shape, way, lane, lanes);
}

}  // namespace stemma::mover
