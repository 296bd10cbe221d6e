// BlockIo and Fence: an engine gives these to a cache, to move bytes and to report finished work.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// One part-block copy that a lease needs before its target may be read.
struct BlockCopy {
  GroupIndex group = 0;
  BlockId source = kNoBlock;
  // kNoBlock for a recurrent group: load `source` into the request's running state.
  BlockId target = kNoBlock;
  uint32_t tokens = 0;  // How many leading positions of the block to copy.
};

// The only way bytes move. The engine, which owns the memory, implements it. Calls may be
// asynchronous: `done` reports completion exactly once, on any thread, never from inside the call's
// own locks. Stemma holds none of its locks during a call.
// Threading: thread-safe.
class BlockIo {
 public:
  using Done = void (*)(void* user, Result<void> outcome);

  virtual ~BlockIo() = default;
  // Copies the first `tokens` positions of each source block to its target.
  virtual void copy(std::span<const BlockCopy> copies, Done done, void* user) = 0;
  // Reads or writes whole blocks of a group, `block_bytes` each, back to back in `bytes`.
  virtual void read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes,
                    Done done, void* user) = 0;
  virtual void write(GroupIndex group, std::span<const BlockId> blocks,
                     std::span<const uint8_t> bytes, Done done, void* user) = 0;
};

// Work of the engine that may still touch a lease's blocks when the lease is released (a kernel in
// flight, for example). Nothing that the lease held is reused before the fence signals.
// Ownership: the engine's; must live until signalled() has returned true, or the cache and all of
//            its leases are gone. Nobody calls it afterwards, so signalled() may recycle the fence
//            in the very call that returns true.
class Fence {
 public:
  virtual ~Fence() = default;
  // Called without locks, from any thread, until it first returns true. Must be cheap and must not
  // block.
  virtual bool signalled() noexcept = 0;
};

}  // namespace stemma
