#include "mover/copy_piece.h"

#include <algorithm>
#include <cstring>

#include "mover/layout.h"

namespace stemma::mover {
namespace {

constexpr uint32_t kBuffer = 4096;

uint8_t* memory(uint64_t address) noexcept { return reinterpret_cast<uint8_t*>(address); }

uint64_t move(const uint8_t* from, uint8_t* to, uint32_t bytes, uint64_t word, bool sum) noexcept {
  if (sum) return base::word_sum_copy({from, bytes}, to, word);
  std::memcpy(to, from, bytes);
  return 0;
}

// The zeros at the end of a plane: how many bytes of the piece are no page's.
uint32_t padding(const Piece& piece, const Shape& shape) noexcept {
  const uint64_t end = uint64_t{piece.first} + piece.bytes;
  return end <= shape.bytes
             ? 0
             : static_cast<uint32_t>(std::min<uint64_t>(end - shape.bytes, piece.bytes));
}

// Runs begin at words, so each is summed as it is copied.
uint64_t copy_runs(const Piece& piece, const Shape& shape, Way way, bool sum) noexcept {
  const uint32_t pad = padding(piece, shape);
  const uint32_t bytes = piece.bytes - pad;
  uint8_t* const packed = memory(piece.packed);
  uint64_t total = 0;
  for_each_run(shape, piece.first, bytes, [&](uint64_t distance, uint32_t at, uint32_t length) {
    uint8_t* const page = memory(piece.page + distance);
    const uint64_t word = uint64_t{piece.word} + at / 8;
    total += way == Way::to_pages ? move(packed + at, page, length, word, sum)
                                  : move(page, packed + at, length, word, sum);
  });
  if (pad == 0) return total;
  if (way == Way::from_pages) std::memset(packed + bytes, 0, pad);
  if (!sum) return total;
  return total + base::word_sum({packed + bytes, pad}, piece.word + bytes / 8);
}

// Through a buffer, in which the bytes lie as in the block.
uint64_t copy_buffered(const Piece& piece, const Shape& shape, Way way) noexcept {
  alignas(64) uint8_t buffer[kBuffer];
  uint64_t total = 0;
  for (uint32_t done = 0; done < piece.bytes;) {
    const uint32_t bytes = std::min(kBuffer, piece.bytes - done);
    const uint32_t first = piece.first + done;
    const uint32_t real = first < shape.bytes ? std::min(bytes, shape.bytes - first) : 0;
    uint8_t* const packed = memory(piece.packed + done);
    const uint64_t word = uint64_t{piece.word} + done / 8;
    const auto runs = [&](auto&& body) {
      for_each_run(shape, first, real, [&](uint64_t distance, uint32_t at, uint32_t length) {
        body(memory(piece.page + distance), buffer + at, length);
      });
    };
    if (way == Way::to_pages) {
      std::memcpy(buffer, packed, bytes);
      runs([](uint8_t* page, const uint8_t* from, uint32_t n) { std::memcpy(page, from, n); });
    } else {
      runs([](const uint8_t* page, uint8_t* to, uint32_t n) { std::memcpy(to, page, n); });
      std::memset(buffer + real, 0, bytes - real);
      std::memcpy(packed, buffer, bytes);
    }
    total += base::word_sum({buffer, bytes}, word);
    done += bytes;
  }
  return total;
}

void copy_between(const Piece& piece, const Shape& whole) noexcept {
  for_each_run(first_tokens(whole, piece.tokens), piece.first, piece.bytes,
               [&](uint64_t distance, uint32_t, uint32_t length) {
                 std::memcpy(memory(piece.packed + distance), memory(piece.page + distance),
                             length);
               });
}

}  // namespace

uint64_t copy_piece(const Piece& piece, const Shape& shape, Way way, bool sum) noexcept {
  if (way == Way::between_pages) {
    copy_between(piece, shape);
    return 0;
  }
  return shape.run_bytes % 8 == 0 || !sum ? copy_runs(piece, shape, way, sum)
                                          : copy_buffered(piece, shape, way);
}

}  // namespace stemma::mover
