// Memory that a device's driver has pinned, so that the device reads and writes it itself, at the speed of its link.
#pragma once

#include <cstdint>

namespace stemma {

// Makes memory known to a device, so that it can be copied from and to without a detour.
// Threading: called from any thread, one call for a piece of memory at a time.
class HostMemoryHook {
 public:
  virtual ~HostMemoryHook() = default;
  // False: it could not be done; whoever asked works with plain memory.
  virtual bool pin(void* memory, uint64_t bytes) noexcept = 0;
  virtual void unpin(void* memory, uint64_t bytes) noexcept = 0;
};

}  // namespace stemma
