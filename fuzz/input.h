// What fuzz targets share: bytes read as small numbers, and a way to stop on a broken promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace stemma::fuzz {

// Reads past the end give zeros, so that every input means something.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  uint8_t u8() {
    if (left_.empty()) return 0;
    const uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  uint32_t u32() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8U | u8();
    return value;
  }
  // Below `limit`, which is at least 1 and at most 256.
  uint32_t below(uint32_t limit) { return u8() % limit; }
  // Mostly small, now and then anything.
  uint32_t number() {
    const uint8_t value = u8();
    return value < 240 ? value : value < 248 ? u32() : 0xFFFF'FFFFU - (value - 248U);
  }
  std::span<const uint8_t> rest() const { return left_; }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace stemma::fuzz

// A promise of the library, checked in every build.
#define FUZZ_EXPECT(condition)                                                                 \
  ((condition) ? static_cast<void>(0)                                                          \
               : (std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition), \
                  std::abort()))
