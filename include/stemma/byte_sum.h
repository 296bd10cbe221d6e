// ByteSum: a checksum of bytes that come in pieces. It detects damage: flipped bits, torn writes,
// bytes of something else. It is not a signature: an attacker can forge it.
//
// Every line of 64 bytes goes into eight lanes of 64 bits. Each word is added to its neighbour's
// lane. The word is also combined with a key for its place, and the product of its two halves is
// added to its own lane. So a changed word always changes a lane. The lanes are scrambled after
// every 16 lines, so that swapped lines are detected. How the bytes are split into pieces does not
// matter. The value is the same on every little-endian machine; it is not stored across versions.
//
// copy() copies and sums in one pass over memory, because memory speed limits several threads that
// do both.
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
  // The sum of bytes that are all available at once.
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

  // Adds the piece and copies it to `to`, bypassing the CPU's caches: for large copies that nobody
  // reads soon. Other threads see the copy after this thread calls end_of_copies().
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

  // The sum of everything added so far.
  uint64_t value() const noexcept;

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kFewBytes = 512;

  // Fills up the waiting line from the piece. Returns how many bytes of the piece it used.
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
  // Keeps bytes that are less than a line until more come.
  void keep(std::span<const uint8_t> rest) noexcept {
    if (rest.empty()) return;
    std::memcpy(rest_.data(), rest.data(), rest.size());
    waiting_ = rest.size();
  }

  // Sums `lines` lines. Unless `to` is null, also copies as many from `from` to `to`, a multiple of
  // kLine.
  void take(const uint8_t* at, size_t lines, const uint8_t* from, uint8_t* to) noexcept;

  std::array<uint64_t, kLanes> lanes_ = {0x9E37'79B9'7F4A'7C15U, 0xC2B2'AE3D'27D4'EB4FU,
                                         0x1656'67B1'9E37'79F9U, 0xD6E8'FEB8'6659'FD93U,
                                         0x2545'F491'4F6C'DD1DU, 0x9FB2'1C65'1E98'DF25U,
                                         0xA076'1D64'78BD'642FU, 0xE703'7ED1'A0B4'28DBU};
  uint32_t line_ = 0;  // Lines since the last scramble.
  uint64_t size_ = 0;
  size_t waiting_ = 0;  // How many bytes rest_ holds; less than a line.
  std::array<uint8_t, kLine> rest_{};
};

}  // namespace stemma
