#include "bench/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<uint64_t> new_calls{0};
std::atomic<int64_t> new_bytes{0};

void* take(size_t bytes, size_t alignment) noexcept {
  // aligned_alloc wants a multiple of the alignment; a request for 0 bytes must not return null.
  if (bytes == 0) bytes = 1;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
  if (counting.load(std::memory_order_relaxed) && memory != nullptr) {
    new_calls.fetch_add(1, std::memory_order_relaxed);
    new_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)),
                        std::memory_order_relaxed);
  }
  return memory;
}

void* take_or_throw(size_t bytes, size_t alignment) {
  void* memory = take(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give(void* memory) noexcept {
  if (counting.load(std::memory_order_relaxed) && memory != nullptr) {
    new_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)),
                        std::memory_order_relaxed);
  }
  std::free(memory);
}

constexpr size_t kPlain = alignof(std::max_align_t);

}  // namespace

void* operator new(size_t bytes) { return take_or_throw(bytes, kPlain); }
void* operator new[](size_t bytes) { return take_or_throw(bytes, kPlain); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, kPlain); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, kPlain); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  give(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  give(memory);
}

namespace stemma::bench {

AllocationWindow::AllocationWindow() noexcept {
  new_calls.store(0, std::memory_order_relaxed);
  new_bytes.store(0, std::memory_order_relaxed);
  counting.store(true, std::memory_order_relaxed);
}

AllocationWindow::~AllocationWindow() { counting.store(false, std::memory_order_relaxed); }

uint64_t AllocationWindow::calls() const noexcept {
  return new_calls.load(std::memory_order_relaxed);
}

int64_t AllocationWindow::live_bytes() const noexcept {
  return new_bytes.load(std::memory_order_relaxed);
}

}  // namespace stemma::bench
