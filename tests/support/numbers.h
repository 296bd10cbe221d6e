// Numbers that many tests use.
#pragma once

#include <cstdint>

namespace stemma::test {

inline constexpr uint32_t kHuge = 0xFFFF'FFFFU;
inline constexpr uint64_t kSecond = 1'000'000'000;  // In nanoseconds.
inline constexpr uint64_t kMib = 1U << 20U;

}  // namespace stemma::test
