// ByteStore: where saved bytes of opaque engines lie, by slot.
//
// The cache decides which slot holds what and how many bytes all of them together may have; a store
// keeps the bytes and vouches for them. A slot is empty, or being written, or sealed:
//
//   empty --open(bytes)--> being written --seal(bytes)--> sealed --drop()--> empty
//
// Invariant:  read() gives exactly the bytes that were sealed, or an error.
// Threading:  one thread at a time.
// Ownership:  the cache's. Spans are valid until the slot is opened or dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stemma/result.h"

namespace stemma {

// What is in the room that open() gives.
enum class Fill : uint8_t {
  zeroes,
  none,  // Whatever was there: for who writes every byte.
};

class ByteStore {
 public:
  virtual ~ByteStore() = default;

  // Room for `bytes` bytes; what the slot had is gone. Error: out_of_memory, out_of_range (no
  // such slot, or more than a slot can have); then the slot is empty.
  virtual Result<std::span<uint8_t>> open(uint32_t slot, uint64_t bytes,
                                          Fill fill = Fill::zeroes) = 0;
  // The first `bytes` of what was opened are what counts. `sum` is their ByteSum where the caller
  // made it while writing them; without it the store looks at them. Error: wrong_state (not being
  // written), out_of_range (more than was opened); nothing changed.
  virtual Result<void> seal(uint32_t slot, uint64_t bytes, std::optional<uint64_t> sum = {}) = 0;
  // Error: corrupt (they are not what was sealed), stale (nothing is sealed there).
  virtual Result<std::span<const uint8_t>> read(uint32_t slot) = 0;
  // The same in two steps, for a caller that looks at every byte anyway: the bytes as they lie there,
  // then whether their ByteSum is the one they were sealed with. Nothing may be made of them before
  // check() has said so. Error: stale from the first, corrupt from the second.
  virtual Result<std::span<const uint8_t>> read_unchecked(uint32_t slot) = 0;
  virtual Result<void> check(uint32_t slot, uint64_t sum) const = 0;
  // What was sealed, unchecked: for whoever has just sealed it. Empty when nothing is.
  virtual std::span<const uint8_t> written(uint32_t slot) const noexcept = 0;
  // What the slot has can go. Harmless when it is empty.
  virtual void drop(uint32_t slot) noexcept = 0;
  // How many bytes read() would give. 0 when nothing is sealed.
  virtual uint64_t size(uint32_t slot) const noexcept = 0;
};

// In memory. With slot_bytes, slots lie side by side in one arena, whose pages are taken as they are
// first written and kept; with 0, every slot has its own piece of memory, of any size, which goes back
// to the system with drop(). Null when the system gives no memory or address space.
// Threading: seal(), read(), check() and size() of a slot may run beside any call for other slots.
// Cost: seal() and read() look at every byte once, about as fast as memory; 32 bytes a slot.
std::unique_ptr<ByteStore> make_memory_store(uint32_t slots, uint64_t slot_bytes) noexcept;

}  // namespace stemma
