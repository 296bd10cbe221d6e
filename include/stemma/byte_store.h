// ByteStore: keeps the saved bytes of opaque engines in slots.
//
// The cache decides which slot holds what, and limits the bytes of all slots together. A store
// keeps the bytes and guarantees their integrity. A slot is empty, or being written, or sealed:
//
//   empty --open(bytes)--> being written --seal(bytes)--> sealed --drop()--> empty
//
// Invariant:  read() returns exactly the bytes that were sealed, or an error.
// Threading:  one thread at a time.
// Ownership:  the cache owns it. Spans are valid until the slot is opened or dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stemma/result.h"

namespace stemma {

// What the memory from open() contains.
enum class Fill : uint8_t {
  zeroes,
  none,  // Anything: for callers that write every byte.
};

class ByteStore {
 public:
  virtual ~ByteStore() = default;

  // Returns room for `bytes` bytes and discards what the slot had. Error: out_of_memory,
  // out_of_range (no such slot, or more than a slot can hold); the slot is then empty.
  virtual Result<std::span<uint8_t>> open(uint32_t slot, uint64_t bytes,
                                          Fill fill = Fill::zeroes) = 0;
  // Seals the first `bytes` of the opened bytes. `sum` is their ByteSum, if the caller computed it
  // while writing; otherwise the store computes it. Error: wrong_state (not being written),
  // out_of_range (more than was opened); nothing changed.
  virtual Result<void> seal(uint32_t slot, uint64_t bytes, std::optional<uint64_t> sum = {}) = 0;
  // Error: corrupt (the bytes are not what was sealed), stale (nothing is sealed there).
  virtual Result<std::span<const uint8_t>> read(uint32_t slot) = 0;
  // The same in two steps, for a caller that reads every byte anyway: read_unchecked() returns the
  // bytes as they are, and check() compares their ByteSum with the sealed one. Do not use the bytes
  // before check() succeeds. Error: stale from the first, corrupt from the second.
  virtual Result<std::span<const uint8_t>> read_unchecked(uint32_t slot) = 0;
  virtual Result<void> check(uint32_t slot, uint64_t sum) const = 0;
  // The sealed bytes, unchecked: for a caller that has just sealed them. Empty if there are none.
  virtual std::span<const uint8_t> written(uint32_t slot) const noexcept = 0;
  // Empties the slot. Harmless if it is empty.
  virtual void drop(uint32_t slot) noexcept = 0;
  // How many bytes read() would return. 0 if nothing is sealed.
  virtual uint64_t size(uint32_t slot) const noexcept = 0;
};

// Makes a store in memory. If slot_bytes is not 0, slots lie side by side in one arena, whose pages
// are allocated when first written, and then kept. If it is 0, each slot has its own memory, of any
// size, which drop() returns to the system. Null if the system gives no memory or address space.
// Threading: seal(), read(), check() and size() of a slot may run beside any call for other slots.
// Cost: seal() and read() read every byte once, at about memory speed; 32 bytes a slot.
std::unique_ptr<ByteStore> make_memory_store(uint32_t slots, uint64_t slot_bytes) noexcept;

}  // namespace stemma
