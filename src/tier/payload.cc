#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "stemma/tier/tier_stack.h"
#include "tier/transfer_arena.h"

namespace stemma::tier {
namespace {

// The system clears memory page by page before its first use. With large pages that is several
// times as fast.
constexpr uint64_t kHugePage = uint64_t{2} << 20U;

uint8_t* allocate(uint64_t bytes) noexcept {
  if (bytes < kHugePage) return static_cast<uint8_t*>(std::malloc(bytes == 0 ? 1 : bytes));
  const uint64_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (whole < bytes) return nullptr;
  void* memory = std::aligned_alloc(kHugePage, whole);
  // Not the last part: it would also take memory past the end.
  if (memory != nullptr) (void)madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(memory);
}

}  // namespace

void Payload::Free::operator()(uint8_t* memory) const noexcept {
  if (arena != nullptr) {
    arena->give_back(memory);
  } else {
    std::free(memory);
  }
}

std::shared_ptr<Payload> Payload::make(uint64_t bytes,
                                       const std::shared_ptr<TransferArena>& arena) try {
  auto payload = std::make_shared<Payload>();
  payload->size = bytes;
  uint8_t* const taken = arena != nullptr ? arena->take(bytes) : nullptr;
  if (taken != nullptr) {
    payload->data = decltype(payload->data)(taken, Free{arena});
  } else {
    payload->data = decltype(payload->data)(allocate(bytes), Free{});
    if (payload->data == nullptr) return nullptr;
  }
  return payload;
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace stemma::tier
