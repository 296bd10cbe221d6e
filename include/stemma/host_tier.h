// The host tier: entries in this process's memory, in one arena of fixed size.
//
// The arena is cut into equal chunks and an entry lies in as many as it needs, wherever they are: any
// free chunk serves any entry, so nothing fragments and evicting one entry makes room for another of its
// size. The price is the unused part of an entry's last chunk.
//
// Invariant:  arena, index and books together never take more than capacity_bytes. Payloads are summed
//             when they come and checked when they go. Words are not kept: nobody could ask for them.
// Threading:  thread-safe. submit() does the whole batch before it returns, on the caller's thread; no
//             byte is copied under a lock.
// Cost:       a put reads its bytes twice and writes them once, a get the other way round; no memory is
//             allocated after creation. Pages are taken from the system when they are first used, and
//             stay. Books: about 140 bytes a chunk, reserved from the capacity.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stemma/pinned_memory.h"
#include "stemma/result.h"
#include "stemma/tier.h"

namespace stemma {

// Pins by the CUDA driver of this machine, for all of its devices and contexts. The driver (libcuda.so.1) is
// looked for when this is first called; Stemma is not linked to it. It keeps the primary context of a device: of
// the first that has an active one (call it after your engine has begun), else of the first that can be used,
// which then takes some memory there. Null where there is no driver, or no such device: nothing to pin for.
// Ownership: the library's, until the process ends. Threading: thread-safe.
HostMemoryHook* cuda_memory_hook() noexcept;

struct HostTierOptions {
  std::string name = "host";
  uint64_t capacity_bytes = 0;
  uint32_t chunk_bytes = 16U << 10U;  // A power of two, 256 bytes to 64 MiB.
  std::string policy = "lru";         // A name that make_policy() knows.
  // Lives longer than the tier. With it, all memory is taken and pinned at creation: cuda_memory_hook(), or the
  // engine's own. A get copies all the same; for what an engine is given see StackOptions::transfer_bytes.
  HostMemoryHook* hook = nullptr;
};

// Error: invalid_argument (a value out of bounds; the number is the offending one), out_of_memory.
Result<std::unique_ptr<Tier>> make_host_tier(const HostTierOptions& options);

}  // namespace stemma
