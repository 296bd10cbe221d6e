// Memory that a device's driver has pinned, so that the device can read and write it directly, at
// the speed of its link.
#pragma once

#include <cstdint>

namespace stemma {

// Registers memory with a device, so that copies to and from it need no intermediate buffer.
// Threading: called from any thread, with one call at a time for each piece of memory.
class HostMemoryHook {
 public:
  virtual ~HostMemoryHook() = default;
  // Returns false if the memory could not be pinned; the caller then uses it as plain memory.
  virtual bool pin(void* memory, uint64_t bytes) noexcept = 0;
  virtual void unpin(void* memory, uint64_t bytes) noexcept = 0;
};

}  // namespace stemma
