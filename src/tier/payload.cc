#include <new>

#include "stemma/tier_stack.h"
#include "tier/transfer_arena.h"

namespace stemma::tier {

void Payload::Free::operator()(uint8_t* memory) const noexcept {
  if (arena != nullptr) {
    arena->give_back(memory);
  } else {
    delete[] memory;
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
    payload->data = decltype(payload->data)(new uint8_t[bytes], Free{});
  }
  return payload;
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace stemma::tier
