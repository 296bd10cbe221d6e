// Numbers threads in the order of their first call, so that neighbours use different slots of a
// small table. (Thread ids would not do: they are addresses with similar low bits.)
#pragma once

#include <atomic>
#include <cstdint>

namespace stemma::base {

inline uint32_t thread_number() noexcept {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace stemma::base
