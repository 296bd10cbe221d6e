#include "fault/failing_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace stemma::test {
namespace {

thread_local uint64_t left = 0;  // Allocations until one fails; 0: none will.
thread_local bool has_fired = false;
thread_local uint64_t most = ~uint64_t{0};  // Bytes; what is larger fails.

void* allocate(size_t bytes, size_t alignment) {
  if (bytes > most) throw std::bad_alloc();
  if (left != 0 && --left == 0) {
    has_fired = true;
    throw std::bad_alloc();
  }
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes == 0 ? 1 : bytes);
  } else if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) {
    memory = nullptr;
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

FailingNew::FailingNew(uint64_t n) noexcept {
  has_fired = false;
  left = n;
}
FailingNew::~FailingNew() { left = 0; }
bool FailingNew::fired() const noexcept { return has_fired; }

NoMemory::NoMemory(uint64_t above) noexcept { most = above; }
NoMemory::~NoMemory() { most = ~uint64_t{0}; }

}  // namespace stemma::test

void* operator new(size_t bytes) { return stemma::test::allocate(bytes, 1); }
void* operator new[](size_t bytes) { return stemma::test::allocate(bytes, 1); }
// Those that do not throw, too: sanitizers' own would not be freed by what follows.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept try {
  return stemma::test::allocate(bytes, 1);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept try {
  return stemma::test::allocate(bytes, 1);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return stemma::test::allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return stemma::test::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
