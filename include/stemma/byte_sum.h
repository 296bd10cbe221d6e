// ByteSum: a checksum of bytes that come in pieces. It notices damage: flipped bits, torn writes, bytes
// of something else. It is no signature: whoever wants to deceive it can.
//
// Every line of 64 bytes goes into eight lanes of 64 bits. A word is added to the lane of its neighbour, and
// the product of its halves, after a key for its place, to its own lane. So a word that changes always changes
// a lane. After 16 lines the lanes are scrambled, so that lines cannot change places. How the bytes are split
// into pieces does not matter. The value is the same on every little-endian machine; it is not stored
// across versions.
//
// copy() copies and sums in one pass over memory, which is what limits several threads that do both.
// Threading:  one thread at a time.
// Cost:       no allocation; about as fast as memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace stemma {

class ByteSum {
 public:
  // The sum of bytes that are all there.
  static uint64_t of(std::span<const uint8_t> bytes) noexcept {
    ByteSum sum;
    sum.add(bytes);
    return sum.value();
  }

  void add(std::span<const uint8_t> piece) noexcept {
    const size_t head = fill_line(piece);
    const size_t lines = (piece.size() - head) / kLine;
    take(piece.data() + head, lines, nullptr, nullptr);
    keep(piece.subspan(head + lines * kLine));
    size_ += piece.size();
  }

  // Adds the piece, and copies it to `to`, past the caches: for much that nobody reads soon. Other threads see
  // the copy after end_of_copies(), called by this thread.
  void copy(std::span<const uint8_t> piece, uint8_t* to) noexcept {
    if (piece.size() < kFewBytes) {
      add(piece);
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      return;
    }
    // Lines of the sum and lines of the target begin at different bytes.
    const size_t head = fill_line(piece);
    const size_t before = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    const size_t bytes = (piece.size() - std::max(head, before)) / kLine * kLine;
    std::memcpy(to, piece.data(), before);
    take(piece.data() + head, bytes / kLine, piece.data() + before, to + before);
    std::memcpy(to + before + bytes, piece.data() + before + bytes, piece.size() - before - bytes);
    const auto rest = piece.subspan(head + bytes);
    const size_t lines = rest.size() / kLine;
    take(rest.data(), lines, nullptr, nullptr);
    keep(rest.subspan(lines * kLine));
    size_ += piece.size();
  }
  static void end_of_copies() noexcept;

  // Of all that was added so far.
  uint64_t value() const noexcept;

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kFewBytes = 512;

  // Completes the line that waits, as far as the piece goes. How much of the piece that takes.
  size_t fill_line(std::span<const uint8_t> piece) noexcept {
    if (waiting_ == 0) return 0;
    const size_t more = std::min(piece.size(), kLine - waiting_);
    if (more != 0) std::memcpy(rest_.data() + waiting_, piece.data(), more);
    waiting_ += more;
    if (waiting_ == kLine) {
      take(rest_.data(), 1, nullptr, nullptr);
      waiting_ = 0;
    }
    return more;
  }
  // Less than a line waits for more.
  void keep(std::span<const uint8_t> rest) noexcept {
    if (rest.empty()) return;
    std::memcpy(rest_.data(), rest.data(), rest.size());
    waiting_ = rest.size();
  }

  // Sums so many lines. Copies as many from `from` to `to`, a multiple of kLine, unless `to` is null.
  void take(const uint8_t* at, size_t lines, const uint8_t* from, uint8_t* to) noexcept;

  std::array<uint64_t, kLanes> lanes_ = {0x9E37'79B9'7F4A'7C15U, 0xC2B2'AE3D'27D4'EB4FU,
                                         0x1656'67B1'9E37'79F9U, 0xD6E8'FEB8'6659'FD93U,
                                         0x2545'F491'4F6C'DD1DU, 0x9FB2'1C65'1E98'DF25U,
                                         0xA076'1D64'78BD'642FU, 0xE703'7ED1'A0B4'28DBU};
  uint32_t line_ = 0;  // Since the last scramble.
  uint64_t size_ = 0;
  size_t waiting_ = 0;  // Bytes of rest_, which are less than a line.
  std::array<uint8_t, kLine> rest_{};
};

}  // namespace stemma
