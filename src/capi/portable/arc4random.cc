// arc4random(), for libraries that include their C++ runtime (STEMMA_PORTABLE).
//
// The static libstdc++ of a system whose C library has arc4random (glibc 2.36) calls it for
// std::random_device. Systems with an older C library do not have it. This one stays inside the
// library that it is linked into.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() {
  uint32_t number = 0;
  // Up to 256 bytes come whole. It fails only without the system call, which every supported kernel
  // has.
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) std::abort();
  return number;
}
