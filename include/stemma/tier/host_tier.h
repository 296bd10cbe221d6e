// The host tier: entries in this process's memory, in one arena of fixed size.
//
// The arena is cut into equal chunks, and an entry takes as many as it needs, anywhere: any free
// chunk serves any entry. So nothing fragments, and evicting one entry makes room for another of
// its size. The cost is the unused part of an entry's last chunk.
//
// Invariant:  arena, index and books together never take more than capacity_bytes. A put sums the
//             payload and a get checks the sum. Words are not kept: no call could ask for them.
// Threading:  thread-safe. submit() does the whole batch before it returns, on the caller's thread;
//             a batch that gets many MiB has up to three more for as long as it lasts. No byte is
//             copied under a lock.
// Cost:       a put sums its bytes and then copies them; a get copies them and then sums the copy.
//             No memory is allocated after creation. Pages are taken from the system at their first
//             use, and kept. Books: about 140 bytes a chunk, reserved from the capacity.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/pinned_memory.h"
#include "stemma/result.h"
#include "stemma/tier/tier.h"

namespace stemma {

// Pins memory with this machine's CUDA driver, for all its devices and contexts. The first call
// looks for the driver (libcuda.so.1); Stemma is not linked to it. The hook keeps the primary
// context of one device: the first with an active context (so start your engine before this call),
// or else the first usable device, where the context then takes some memory. Returns null without a
// driver or such a device: there is nothing to pin for.
// Ownership: the library's, until the process ends. Threading: thread-safe.
HostMemoryHook* cuda_memory_hook() noexcept;

struct HostTierOptions {
  std::string name = "host";
  uint64_t capacity_bytes = 0;
  uint32_t chunk_bytes = 16U << 10U;  // A power of two, 256 bytes to 64 MiB.
  std::string policy = "lru";         // A name that make_policy() knows.
  // cuda_memory_hook(), or the engine's own; it must outlive the tier. With a hook, all memory is
  // taken and pinned at creation. A get still copies; for the memory that an engine is given, see
  // StackOptions::transfer_bytes.
  HostMemoryHook* hook = nullptr;
};

// Error: invalid_argument (a value out of bounds; the number is the offending one), out_of_memory.
Result<std::unique_ptr<Tier>> make_host_tier(const HostTierOptions& options);

}  // namespace stemma
